package org.springframework.data.redis.core;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.URI;
import org.springframework.dao.DataAccessResourceFailureException;
import org.springframework.data.redis.connection.RedisConnection;

/** A connection for each command, with the time limits that application.properties sets. */
public final class StringRedisTemplate {
    private static final int LIMIT = 500;

    private final URI url;

    public StringRedisTemplate(URI url) {
        this.url = url;
    }

    public <T> T execute(RedisCallback<T> action) {
        RedisConnection connection = () -> (key, value, expiration, option) -> {
            say(bytes("SET"), key, value, bytes("PXAT"), bytes(Long.toString(expiration.millis)));
            return true;
        };
        return action.doInRedis(connection);
    }

    public Boolean delete(String key) {
        say(bytes("DEL"), bytes(key));
        return true;
    }

    private static byte[] bytes(String text) {
        return text.getBytes(UTF_8);
    }

    private void say(byte[]... words) {
        try (Socket socket = new Socket()) {
            socket.setSoTimeout(LIMIT);
            socket.connect(new InetSocketAddress(url.getHost(), url.getPort()), LIMIT);
            ByteArrayOutputStream command = new ByteArrayOutputStream();
            command.write(bytes("*" + words.length + "\r\n"));
            for (byte[] word : words) {
                command.write(bytes("$" + word.length + "\r\n"));
                command.write(word);
                command.write(bytes("\r\n"));
            }
            socket.getOutputStream().write(command.toByteArray());
            int first = socket.getInputStream().read();
            if (first == '-' || first == -1) {
                throw new IOException("Redis refused it");
            }
        } catch (IOException e) {
            throw new DataAccessResourceFailureException("Redis", e);
        }
    }
}
