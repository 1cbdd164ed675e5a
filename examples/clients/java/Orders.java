import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.SQLException;
import java.time.Instant;
import java.time.LocalDateTime;
import java.time.ZoneOffset;
import java.util.logging.Level;
import java.util.logging.Logger;
import javax.sql.DataSource;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.JedisPooled;
import redis.clients.jedis.UnifiedJedis;
import redis.clients.jedis.exceptions.JedisException;
import redis.clients.jedis.params.SetParams;

/** An order service's part, with JDBC (MySQL, MariaDB) and Jedis. */
public final class Orders {
    private static final Logger LOG = Logger.getLogger(Orders.class.getName());

    private final DataSource db;
    private final UnifiedJedis redis;

    public Orders(DataSource db, HostAndPort redis) {
        this.db = db;
        // The order closes by its row, so a checkout waits only half a second for Redis.
        this.redis = new JedisPooled(redis, DefaultJedisClientConfig.builder()
                .connectionTimeoutMillis(500).socketTimeoutMillis(500).build());
    }

    /** The deadline with milliseconds at the most, which is what a key has. */
    public void create(long orderNo, Instant deadline) throws SQLException {
        update("INSERT INTO orders (order_no, status, expires_at) VALUES (?, 0, ?)", orderNo, inUtc(deadline));
        writeKey(orderNo, deadline);
    }

    /** False: not paid by this call. Read the status, then refuse or refund. */
    public boolean pay(long orderNo) throws SQLException {
        boolean paid = update("UPDATE orders SET status = 1 WHERE order_no = ? AND status = 0"
                + " AND expires_at > UTC_TIMESTAMP(6)", orderNo) == 1;
        if (paid) {
            deleteKey(orderNo);
        }
        return paid;
    }

    /** False: there is no such unpaid order any more. */
    public boolean extend(long orderNo, Instant deadline) throws SQLException {
        boolean extended = update("UPDATE orders SET expires_at = ? WHERE order_no = ? AND status = 0",
                inUtc(deadline), orderNo) == 1;
        if (extended) {
            writeKey(orderNo, deadline);
        }
        return extended;
    }

    /** False: it was paid or closed before. What close.sql gives back, give back here, in the same transaction. */
    public boolean cancel(long orderNo) throws SQLException {
        boolean cancelled = update("UPDATE orders SET status = 4 WHERE order_no = ? AND status = 0", orderNo) == 1;
        if (cancelled) {
            deleteKey(orderNo);
        }
        return cancelled;
    }

    /** Runs a statement and commits it, whether or not connections of this pool commit by themselves. */
    private int update(String sql, Object... values) throws SQLException {
        try (Connection connection = db.getConnection();
                PreparedStatement statement = connection.prepareStatement(sql)) {
            for (int i = 0; i < values.length; i++) {
                statement.setObject(i + 1, values[i]);
            }
            int rows = statement.executeUpdate();
            if (!connection.getAutoCommit()) {
                connection.commit();
            }
            return rows;
        }
    }

    /** A Timestamp would be written in the JVM's zone; a LocalDateTime is written as it is. */
    private static LocalDateTime inUtc(Instant deadline) {
        return LocalDateTime.ofInstant(deadline, ZoneOffset.UTC);
    }

    private void writeKey(long orderNo, Instant deadline) {
        ifThere(() -> redis.set("order_" + orderNo, "", SetParams.setParams().pxAt(deadline.toEpochMilli())));
    }

    private void deleteKey(long orderNo) {
        ifThere(() -> redis.del("order_" + orderNo));
    }

    private static void ifThere(Runnable command) {
        try {
            command.run();
        } catch (JedisException e) {
            LOG.log(Level.WARNING, "Redis is away; the order''s row is enough: {0}", e.getMessage());
        }
    }
}
