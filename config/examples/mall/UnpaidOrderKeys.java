package com.macro.mall.portal.component;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Date;
import java.util.concurrent.TimeUnit;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import org.springframework.data.redis.connection.RedisStringCommands.SetOption;
import org.springframework.data.redis.core.RedisCallback;
import org.springframework.data.redis.core.StringRedisTemplate;
import org.springframework.data.redis.core.types.Expiration;
import org.springframework.stereotype.Component;
import org.springframework.transaction.support.TransactionSynchronization;
import org.springframework.transaction.support.TransactionSynchronizationManager;

/**
 * Tells order-closer, through Redis, when an unpaid order is to be closed.
 *
 * <p>Put it beside mall-portal's CancelOrderSender, and call it at the end of generateOrder, in the place of
 * sendDelayMessageCancelOrder:
 * <pre>
 * unpaidOrderKeys.write(order.getId(), order.getCreateTime(),
 *     orderSettingMapper.selectByPrimaryKey(1L).getNormalOrderOvertime());
 * </pre>
 */
@Component
public class UnpaidOrderKeys {
    private static final Logger LOGGER = LoggerFactory.getLogger(UnpaidOrderKeys.class);
    private static final String PREFIX = "mall:oms:unpaid:";

    private final StringRedisTemplate redis;

    public UnpaidOrderKeys(StringRedisTemplate redis) {
        this.redis = redis;
    }

    /**
     * Writes the order's key once the order is committed, so that nobody is told of an order that is rolled back.
     *
     * @param createTime as it is stored, in oms_order.create_time
     * @param minutes    how long the order may be paid
     */
    public void write(long orderId, Date createTime, int minutes) {
        // The column has no fractions of a second, and rounds.
        long deadline = (createTime.getTime() + 500) / 1000 * 1000 + Duration.ofMinutes(minutes).toMillis();
        if (!TransactionSynchronizationManager.isSynchronizationActive()) {
            set(orderId, deadline);
            return;
        }
        TransactionSynchronizationManager.registerSynchronization(new TransactionSynchronization() {
            @Override
            public void afterCommit() {
                set(orderId, deadline);
            }
        });
    }

    /** An order without a key is found by order-closer's sweep, so the customer's order does not fail with Redis. */
    private void set(long orderId, long deadline) {
        byte[] key = (PREFIX + orderId).getBytes(StandardCharsets.UTF_8);
        Expiration expiration = Expiration.unixTimestamp(deadline, TimeUnit.MILLISECONDS);
        try {
            redis.execute((RedisCallback<Boolean>)
                connection -> connection.stringCommands().set(key, new byte[0], expiration, SetOption.upsert()));
        } catch (RuntimeException error) {
            LOGGER.warn("order {} has no key in Redis", orderId, error);
        }
    }
}
