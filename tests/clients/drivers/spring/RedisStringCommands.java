package org.springframework.data.redis.connection;

import org.springframework.data.redis.core.types.Expiration;

public interface RedisStringCommands {
    Boolean set(byte[] key, byte[] value, Expiration expiration, SetOption option);

    enum SetOption {
        UPSERT;

        public static SetOption upsert() {
            return UPSERT;
        }
    }
}
