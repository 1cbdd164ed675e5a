import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.URI;
import java.time.Instant;
import javax.sql.DataSource;
import org.mariadb.jdbc.MariaDbDataSource;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.data.redis.core.StringRedisTemplate;
import org.springframework.jdbc.core.JdbcTemplate;
import org.springframework.jdbc.datasource.DataSourceTransactionManager;
import org.springframework.transaction.event.TransactionalEventListenerFactory;
import org.springframework.transaction.support.TransactionCallback;
import org.springframework.transaction.support.TransactionTemplate;

/**
 * Calls the client in an application context, as Drive does it without one. Debian's Spring can't make the proxy of a class that
 * begins its transactions, so they are begun here.
 */
final class DriveSpring {
    public static void main(String[] arguments) throws Exception {
        DataSource source = new MariaDbDataSource(System.getenv("DATABASE_URL"));
        AnnotationConfigApplicationContext context = new AnnotationConfigApplicationContext();
        TransactionTemplate transactions = new TransactionTemplate(new DataSourceTransactionManager(source));
        context.getBeanFactory().registerSingleton("db", new JdbcTemplate(source));
        context.getBeanFactory().registerSingleton("redis", new StringRedisTemplate(URI.create(System.getenv("REDIS_URL"))));
        context.register(TransactionalEventListenerFactory.class, OrderService.class);
        context.refresh();
        OrderService orders = context.getBean(OrderService.class);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            try {
                System.out.println("= " + transactions.execute(answer(orders, line.split(" "))));
            } catch (Exception e) {
                System.out.println("= failed: " + e);
            }
        }
    }

    private static TransactionCallback<Object> answer(OrderService orders, String[] words) {
        long order = Long.parseLong(words[1]);
        Instant deadline = words.length > 2 ? Instant.ofEpochMilli(Long.parseLong(words[2])) : null;
        switch (words[0]) {
            case "create":
                return transaction -> {
                    orders.create(order, deadline);
                    return "done";
                };
            case "pay":
                return transaction -> orders.pay(order);
            case "extend":
                return transaction -> orders.extend(order, deadline);
            case "cancel":
                return transaction -> orders.cancel(order);
            default:
                throw new IllegalArgumentException("no such verb");
        }
    }
}
