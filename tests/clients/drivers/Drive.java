import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.URI;
import java.sql.Connection;
import java.sql.SQLException;
import java.time.Instant;
import org.mariadb.jdbc.MariaDbDataSource;
import redis.clients.jedis.HostAndPort;

/** Calls the client as told on standard input: a verb, an order, and mostly a deadline in milliseconds. */
final class Drive {
    public static void main(String[] arguments) throws Exception {
        boolean autocommit = arguments[0].equals("autocommit");
        URI redis = URI.create(System.getenv("REDIS_URL"));
        Orders orders = new Orders(new MariaDbDataSource(System.getenv("DATABASE_URL")) {
            @Override
            public Connection getConnection() throws SQLException {
                Connection connection = super.getConnection();
                connection.setAutoCommit(autocommit);
                return connection;
            }
        }, new HostAndPort(redis.getHost(), redis.getPort()));
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            long order = Long.parseLong(words[1]);
            Instant deadline = words.length > 2 ? Instant.ofEpochMilli(Long.parseLong(words[2])) : null;
            try {
                System.out.println("= " + switch (words[0]) {
                    case "create" -> {
                        orders.create(order, deadline);
                        yield "done";
                    }
                    case "pay" -> orders.pay(order);
                    case "extend" -> orders.extend(order, deadline);
                    case "cancel" -> orders.cancel(order);
                    default -> "failed: no such verb";
                });
            } catch (Exception e) {
                System.out.println("= failed: " + e);
            }
        }
    }
}
