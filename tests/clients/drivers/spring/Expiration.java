package org.springframework.data.redis.core.types;

import java.util.concurrent.TimeUnit;

/** Stands in for Spring Data Redis, which Debian lacks: what the client calls of it, with its signatures. */
public final class Expiration {
    public final long millis;

    private Expiration(long millis) {
        this.millis = millis;
    }

    public static Expiration unixTimestamp(long unixTimestamp, TimeUnit timeUnit) {
        return new Expiration(timeUnit.toMillis(unixTimestamp));
    }
}
