import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Instant;
import org.mariadb.jdbc.MariaDbDataSource;

/** Calls the client of timers as told on standard input: a verb, an order, and mostly a deadline in milliseconds. */
final class DriveTimers {
    public static void main(String[] arguments) throws Exception {
        Timers timers = new Timers(new MariaDbDataSource(System.getenv("DATABASE_URL")));
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            long order = Long.parseLong(words[1]);
            Instant deadline = words.length > 2 ? Instant.ofEpochMilli(Long.parseLong(words[2])) : null;
            try {
                System.out.println("= " + switch (words[0]) {
                    case "create" -> {
                        timers.create(order, deadline);
                        yield "done";
                    }
                    case "extend" -> timers.extend(order, deadline);
                    case "pay" -> timers.pay(order);
                    default -> "failed: no such verb";
                });
            } catch (Exception e) {
                System.out.println("= failed: " + e);
            }
        }
    }
}
