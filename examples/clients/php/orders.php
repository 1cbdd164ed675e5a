<?php
// An order service's part, with PDO (MySQL, MariaDB) and phpredis.

final class Orders
{
    private ?Redis $redis = null;

    public function __construct(private PDO $db, private string $redisHost, private int $redisPort)
    {
        $db->setAttribute(PDO::ATTR_ERRMODE, PDO::ERRMODE_EXCEPTION);
    }

    /** The deadline with milliseconds at the most, which is what a key has. */
    public function create(int $orderNo, DateTimeImmutable $deadline): void
    {
        // Outside a transaction the row is committed when this returns.
        $insert = $this->db->prepare('INSERT INTO orders (order_no, status, expires_at) VALUES (?, 0, ?)');
        $insert->execute([$orderNo, self::inUtc($deadline)]);
        $this->writeKey($orderNo, $deadline);
    }

    /** False: not paid by this call. Read the status, then refuse or refund. */
    public function pay(int $orderNo): bool
    {
        $update = $this->db->prepare(
            'UPDATE orders SET status = 1 WHERE order_no = ? AND status = 0 AND expires_at > UTC_TIMESTAMP(6)'
        );
        $update->execute([$orderNo]);
        if ($update->rowCount() !== 1) {
            return false;
        }
        $this->deleteKey($orderNo);
        return true;
    }

    /** False: there is no such unpaid order any more. */
    public function extend(int $orderNo, DateTimeImmutable $deadline): bool
    {
        $update = $this->db->prepare('UPDATE orders SET expires_at = ? WHERE order_no = ? AND status = 0');
        $update->execute([self::inUtc($deadline), $orderNo]);
        if ($update->rowCount() !== 1) {
            return false;
        }
        $this->writeKey($orderNo, $deadline);
        return true;
    }

    /** False: it was paid or closed before. What close.sql gives back, give back here, in the same transaction. */
    public function cancel(int $orderNo): bool
    {
        $update = $this->db->prepare('UPDATE orders SET status = 4 WHERE order_no = ? AND status = 0');
        $update->execute([$orderNo]);
        if ($update->rowCount() !== 1) {
            return false;
        }
        $this->deleteKey($orderNo);
        return true;
    }

    /** PDO writes the text that it is given, so that has to be in UTC. */
    private static function inUtc(DateTimeImmutable $deadline): string
    {
        return $deadline->setTimezone(new DateTimeZone('UTC'))->format('Y-m-d H:i:s.v');
    }

    private function writeKey(int $orderNo, DateTimeImmutable $deadline): void
    {
        // rawCommand knows no OPT_PREFIX: write the whole key.
        $this->ifThere(fn (Redis $redis) => $redis->rawCommand('SET', "order_$orderNo", '', 'PXAT', $deadline->format('Uv')));
    }

    private function deleteKey(int $orderNo): void
    {
        $this->ifThere(fn (Redis $redis) => $redis->rawCommand('DEL', "order_$orderNo"));
    }

    /** Half a second for Redis, not PHP's 60. The order closes by its row, so a checkout goes on without it. */
    private function ifThere(callable $command): void
    {
        try {
            if ($this->redis === null) {
                $redis = new Redis();
                $redis->connect($this->redisHost, $this->redisPort, 0.5, null, 0, 0.5);
                $this->redis = $redis;
            }
            $command($this->redis);
        } catch (RedisException $e) {
            $this->redis = null;
            error_log("Redis is away; the order's row is enough: {$e->getMessage()}");
        }
    }
}
