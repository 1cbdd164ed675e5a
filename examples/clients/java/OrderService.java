import static java.nio.charset.StandardCharsets.UTF_8;
import static java.util.concurrent.TimeUnit.MILLISECONDS;

import java.time.Instant;
import java.time.LocalDateTime;
import java.time.ZoneOffset;
import org.apache.commons.logging.Log;
import org.apache.commons.logging.LogFactory;
import org.springframework.context.ApplicationEventPublisher;
import org.springframework.dao.DataAccessException;
import org.springframework.data.redis.connection.RedisStringCommands.SetOption;
import org.springframework.data.redis.core.RedisCallback;
import org.springframework.data.redis.core.StringRedisTemplate;
import org.springframework.data.redis.core.types.Expiration;
import org.springframework.jdbc.core.JdbcTemplate;
import org.springframework.stereotype.Service;
import org.springframework.transaction.annotation.Transactional;
import org.springframework.transaction.event.TransactionalEventListener;

/**
 * An order service's part, with Spring's JdbcTemplate (MySQL, MariaDB) and StringRedisTemplate.
 *
 * In application.properties, so that Redis has half a second and not a minute:
 *   spring.data.redis.timeout=500ms
 *   spring.data.redis.connect-timeout=500ms
 */
@Service
public class OrderService {
    private static final Log LOG = LogFactory.getLog(OrderService.class);

    private final JdbcTemplate db;
    private final StringRedisTemplate redis;
    private final ApplicationEventPublisher events;

    public OrderService(JdbcTemplate db, StringRedisTemplate redis, ApplicationEventPublisher events) {
        this.db = db;
        this.redis = redis;
        this.events = events;
    }

    /** The deadline with milliseconds at the most, which is what a key has. */
    @Transactional
    public void create(long orderNo, Instant deadline) {
        db.update("INSERT INTO orders (order_no, status, expires_at) VALUES (?, 0, ?)", orderNo, inUtc(deadline));
        events.publishEvent(new KeyChange(orderNo, deadline));
    }

    /** False: not paid by this call. Read the status, then refuse or refund. */
    @Transactional
    public boolean pay(long orderNo) {
        return settle(orderNo, "UPDATE orders SET status = 1 WHERE order_no = ? AND status = 0 AND expires_at > UTC_TIMESTAMP(6)");
    }

    /** False: it was paid or closed before. What close.sql gives back, give back in here. */
    @Transactional
    public boolean cancel(long orderNo) {
        return settle(orderNo, "UPDATE orders SET status = 4 WHERE order_no = ? AND status = 0");
    }

    /** False: there is no such unpaid order any more. */
    @Transactional
    public boolean extend(long orderNo, Instant deadline) {
        boolean extended = db.update("UPDATE orders SET expires_at = ? WHERE order_no = ? AND status = 0",
                inUtc(deadline), orderNo) == 1;
        if (extended) {
            events.publishEvent(new KeyChange(orderNo, deadline));
        }
        return extended;
    }

    /** After the outermost COMMIT, whoever began that transaction; after a ROLLBACK never. */
    @TransactionalEventListener(fallbackExecution = true)
    public void tellRedis(KeyChange change) {
        String key = "order_" + change.orderNo;
        try {
            if (change.deadline == null) {
                redis.delete(key);
            } else {
                Expiration deadline = Expiration.unixTimestamp(change.deadline.toEpochMilli(), MILLISECONDS);
                redis.execute((RedisCallback<Boolean>) connection ->
                        connection.stringCommands().set(key.getBytes(UTF_8), new byte[0], deadline, SetOption.upsert()));
            }
        } catch (DataAccessException e) {
            LOG.warn("Redis is away; the order's row is enough: " + e.getMessage());
        }
    }

    private boolean settle(long orderNo, String update) {
        boolean settled = db.update(update, orderNo) == 1;
        if (settled) {
            events.publishEvent(new KeyChange(orderNo, null));
        }
        return settled;
    }

    /** A Timestamp would be written in the JVM's zone; a LocalDateTime is written as it is. */
    private static LocalDateTime inUtc(Instant deadline) {
        return LocalDateTime.ofInstant(deadline, ZoneOffset.UTC);
    }

    /** An order's key is to have this deadline; without one, it is to go. */
    public static final class KeyChange {
        final long orderNo;
        final Instant deadline;

        KeyChange(long orderNo, Instant deadline) {
            this.orderNo = orderNo;
            this.deadline = deadline;
        }
    }
}
