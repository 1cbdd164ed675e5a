<?php
// A reminder ten minutes before an order's deadline, with PDO (MySQL, MariaDB): registered, moved and cancelled with the order.

final class Timers
{
    public function __construct(private PDO $db)
    {
        $db->setAttribute(PDO::ATTR_ERRMODE, PDO::ERRMODE_EXCEPTION);
    }

    public function create(int $orderNo, DateTimeImmutable $deadline): void
    {
        $this->transaction(function () use ($orderNo, $deadline) {
            $this->run('INSERT INTO orders (order_no, status, expires_at) VALUES (?, 0, ?)', $orderNo, self::inUtc($deadline));
            $this->remind($orderNo, $deadline);
        });
    }

    /** False: there is no such unpaid order any more. */
    public function extend(int $orderNo, DateTimeImmutable $deadline): bool
    {
        return $this->transaction(function () use ($orderNo, $deadline) {
            $update = 'UPDATE orders SET expires_at = ? WHERE order_no = ? AND status = 0';
            $extended = $this->run($update, self::inUtc($deadline), $orderNo) === 1;
            if ($extended) {
                $this->remind($orderNo, $deadline);
            }
            return $extended;
        });
    }

    /** False: not paid by this call. */
    public function pay(int $orderNo): bool
    {
        return $this->transaction(function () use ($orderNo) {
            $paid = $this->run('UPDATE orders SET status = 1 WHERE order_no = ? AND status = 0', $orderNo) === 1;
            if ($paid) {
                $this->run("DELETE FROM order_closer_timers WHERE kind = 'reminder' AND `key` = ? AND state = 'armed'", "$orderNo");
            }
            return $paid;
        });
    }

    /** One that is there is moved. The order's row is locked, so the last one to be registered is the right one. */
    private function remind(int $orderNo, DateTimeImmutable $deadline): void
    {
        // Seconds and six digits of microseconds.
        $dueAt = $deadline->modify('-10 minutes')->format('Uu');
        $this->run(
            "INSERT INTO order_closer_timers (kind, `key`, due_at, target, data) VALUES ('reminder', ?, ?, 'reminders', ?)
             ON DUPLICATE KEY UPDATE state = 'armed', due_at = VALUES(due_at)",
            "$orderNo", $dueAt, json_encode(['order' => $orderNo])
        );
    }

    /** PDO writes the text that it is given, so that has to be in UTC. */
    private static function inUtc(DateTimeImmutable $deadline): string
    {
        return $deadline->setTimezone(new DateTimeZone('UTC'))->format('Y-m-d H:i:s.u');
    }

    private function run(string $sql, mixed ...$values): int
    {
        $statement = $this->db->prepare($sql);
        $statement->execute($values);
        return $statement->rowCount();
    }

    private function transaction(callable $work): mixed
    {
        $this->db->beginTransaction();
        try {
            $result = $work();
            $this->db->commit();
            return $result;
        } catch (Throwable $error) {
            $this->db->rollBack();
            throw $error;
        }
    }
}
