package org.springframework.data.redis.core;

import org.springframework.dao.DataAccessException;
import org.springframework.data.redis.connection.RedisConnection;

public interface RedisCallback<T> {
    T doInRedis(RedisConnection connection) throws DataAccessException;
}
