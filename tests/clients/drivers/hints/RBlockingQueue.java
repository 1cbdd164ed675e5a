package org.redisson.api;

/** As much of Redisson's as the client uses. */
public interface RBlockingQueue<V> {
    V take() throws InterruptedException;
}
