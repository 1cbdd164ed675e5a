<?php
// An order service's part, with Laravel's DB and Redis (phpredis).

use Illuminate\Support\Facades\DB;
use Illuminate\Support\Facades\Log;
use Illuminate\Support\Facades\Redis;

/**
 * In config/database.php, so that Redis has half a second and not PHP's 60:
 *   'redis' => ['orders' => ['host' => env('REDIS_HOST'), 'port' => env('REDIS_PORT'), 'timeout' => 0.5, 'read_timeout' => 0.5]]
 */
final class Orders
{
    /** The deadline with milliseconds at the most, which is what a key has. */
    public function create(int $orderNo, DateTimeImmutable $deadline): void
    {
        DB::transaction(function () use ($orderNo, $deadline) {
            DB::insert('INSERT INTO orders (order_no, status, expires_at) VALUES (?, 0, ?)', [$orderNo, self::inUtc($deadline)]);
            // After the outermost COMMIT, whoever began that transaction.
            DB::afterCommit(fn () => $this->writeKey($orderNo, $deadline));
        });
    }

    /** False: not paid by this call. Read the status, then refuse or refund. */
    public function pay(int $orderNo): bool
    {
        return DB::transaction(fn () => $this->settle(
            $orderNo, 'UPDATE orders SET status = 1 WHERE order_no = ? AND status = 0 AND expires_at > UTC_TIMESTAMP(6)'
        ));
    }

    /** False: it was paid or closed before. */
    public function cancel(int $orderNo): bool
    {
        // What close.sql gives back, give back in here.
        return DB::transaction(fn () => $this->settle($orderNo, 'UPDATE orders SET status = 4 WHERE order_no = ? AND status = 0'));
    }

    /** False: there is no such unpaid order any more. */
    public function extend(int $orderNo, DateTimeImmutable $deadline): bool
    {
        return DB::transaction(function () use ($orderNo, $deadline) {
            $update = 'UPDATE orders SET expires_at = ? WHERE order_no = ? AND status = 0';
            if (DB::update($update, [self::inUtc($deadline), $orderNo]) !== 1) {
                return false;
            }
            DB::afterCommit(fn () => $this->writeKey($orderNo, $deadline));
            return true;
        });
    }

    private function settle(int $orderNo, string $update): bool
    {
        if (DB::update($update, [$orderNo]) !== 1) {
            return false;
        }
        DB::afterCommit(fn () => $this->tellRedis('DEL', "order_$orderNo"));
        return true;
    }

    /** PDO writes the text that it is given, so that has to be in UTC. */
    private static function inUtc(DateTimeImmutable $deadline): string
    {
        return $deadline->setTimezone(new DateTimeZone('UTC'))->format('Y-m-d H:i:s.v');
    }

    private function writeKey(int $orderNo, DateTimeImmutable $deadline): void
    {
        $this->tellRedis('SET', "order_$orderNo", '', 'PXAT', $deadline->format('Uv'));
    }

    /** The order closes by its row, so a checkout goes on without Redis. */
    private function tellRedis(string ...$command): void
    {
        try {
            // Raw, since Laravel would put its own prefix before the key.
            Redis::connection('orders')->executeRaw($command);
        } catch (RedisException $e) {
            // The next one connects anew.
            Redis::purge('orders');
            Log::warning("Redis is away; the order's row is enough: {$e->getMessage()}");
        }
    }
}
