package org.redisson.api;

/** As much of Redisson's as the client uses. */
public interface RedissonClient {
    <V> RBlockingQueue<V> getBlockingQueue(String name);

    <V> Object getDelayedQueue(RBlockingQueue<V> queue);
}
