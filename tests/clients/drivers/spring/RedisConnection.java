package org.springframework.data.redis.connection;

public interface RedisConnection {
    RedisStringCommands stringCommands();
}
