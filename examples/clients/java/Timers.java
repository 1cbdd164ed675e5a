import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.SQLException;
import java.time.Duration;
import java.time.Instant;
import java.time.LocalDateTime;
import java.time.ZoneOffset;
import java.time.temporal.ChronoUnit;
import javax.sql.DataSource;

/** A reminder ten minutes before an order's deadline, with JDBC (MySQL, MariaDB): registered, moved and cancelled with the order. */
public final class Timers {
    private final DataSource db;

    public Timers(DataSource db) {
        this.db = db;
    }

    public void create(long orderNo, Instant deadline) throws SQLException {
        transaction(tx -> {
            update(tx, "INSERT INTO orders (order_no, status, expires_at) VALUES (?, 0, ?)", orderNo, inUtc(deadline));
            remind(tx, orderNo, deadline);
            return true;
        });
    }

    /** False: there is no such unpaid order any more. */
    public boolean extend(long orderNo, Instant deadline) throws SQLException {
        return transaction(tx -> {
            boolean extended = update(tx, "UPDATE orders SET expires_at = ? WHERE order_no = ? AND status = 0",
                    inUtc(deadline), orderNo) == 1;
            if (extended) {
                remind(tx, orderNo, deadline);
            }
            return extended;
        });
    }

    /** False: not paid by this call. */
    public boolean pay(long orderNo) throws SQLException {
        return transaction(tx -> {
            boolean paid = update(tx, "UPDATE orders SET status = 1 WHERE order_no = ? AND status = 0", orderNo) == 1;
            if (paid) {
                update(tx, "DELETE FROM order_closer_timers WHERE kind = 'reminder' AND `key` = ? AND state = 'armed'",
                        Long.toString(orderNo));
            }
            return paid;
        });
    }

    /** One that is there is moved. The order's row is locked, so the last one to be registered is the right one. */
    private static void remind(Connection tx, long orderNo, Instant deadline) throws SQLException {
        long dueAt = ChronoUnit.MICROS.between(Instant.EPOCH, deadline.minus(Duration.ofMinutes(10)));
        update(tx, "INSERT INTO order_closer_timers (kind, `key`, due_at, target, data) VALUES ('reminder', ?, ?, 'reminders', ?)"
                + " ON DUPLICATE KEY UPDATE state = 'armed', due_at = VALUES(due_at)",
                Long.toString(orderNo), dueAt, "{\"order\": " + orderNo + "}");
    }

    /** A Timestamp would be written in the JVM's zone; a LocalDateTime is written as it is. */
    private static LocalDateTime inUtc(Instant deadline) {
        return LocalDateTime.ofInstant(deadline, ZoneOffset.UTC);
    }

    private static int update(Connection tx, String sql, Object... values) throws SQLException {
        try (PreparedStatement statement = tx.prepareStatement(sql)) {
            for (int i = 0; i < values.length; i++) {
                statement.setObject(i + 1, values[i]);
            }
            return statement.executeUpdate();
        }
    }

    private interface Work {
        boolean in(Connection tx) throws SQLException;
    }

    private boolean transaction(Work work) throws SQLException {
        try (Connection tx = db.getConnection()) {
            tx.setAutoCommit(false);
            try {
                boolean result = work.in(tx);
                tx.commit();
                return result;
            } catch (SQLException e) {
                tx.rollback();
                throw e;
            }
        }
    }
}
