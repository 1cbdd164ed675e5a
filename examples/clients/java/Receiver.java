import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.SQLException;
import java.util.Base64;
import java.util.concurrent.Executors;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

/** Hears of closed orders by webhook, with JDBC (PostgreSQL) and nothing else that is not in the JDK. */
public final class Receiver {
    private static final String DATABASE_URL = System.getenv("DATABASE_URL");
    private static final byte[] SECRET =
            Base64.getDecoder().decode(System.getenv("WEBHOOK_SECRET").replaceFirst("^whsec_", ""));

    public static void main(String[] arguments) throws IOException {
        int port = Integer.parseInt(System.getenv("PORT"));
        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", port), 0);
        server.setExecutor(Executors.newFixedThreadPool(8));
        server.createContext("/hooks/orders", exchange -> {
            exchange.sendResponseHeaders(answer(exchange), -1);
            exchange.close();
        });
        server.start();
    }

    private static int answer(HttpExchange exchange) throws IOException {
        // The signature is over the very bytes that came.
        byte[] body = exchange.getRequestBody().readNBytes(1_000_000);
        String id = exchange.getRequestHeaders().getFirst("webhook-id");
        String timestamp = exchange.getRequestHeaders().getFirst("webhook-timestamp");
        String signatures = exchange.getRequestHeaders().getFirst("webhook-signature");
        try {
            if (id == null || timestamp == null || signatures == null || !isGenuine(id, timestamp, signatures, body)) {
                return 401;
            }
            // The signed header webhook-id is the event's id. What is in the event, your JSON library reads.
            take(id, new String(body, StandardCharsets.UTF_8));
            return 204;
        } catch (SQLException | GeneralSecurityException e) {
            // The event comes again.
            return 500;
        }
    }

    /** Whether it is signed with our secret, and was so within the last five minutes. */
    private static boolean isGenuine(String id, String timestamp, String signatures, byte[] body)
            throws GeneralSecurityException {
        if (!timestamp.matches("\\d{1,12}")
                || Math.abs(System.currentTimeMillis() / 1000 - Long.parseLong(timestamp)) > 300) {
            return false;
        }
        Mac mac = Mac.getInstance("HmacSHA256");
        mac.init(new SecretKeySpec(SECRET, "HmacSHA256"));
        mac.update((id + "." + timestamp + ".").getBytes(StandardCharsets.UTF_8));
        byte[] expected = ("v1," + Base64.getEncoder().encodeToString(mac.doFinal(body))).getBytes();
        boolean genuine = false;
        for (String signature : signatures.split(" ")) {
            genuine |= MessageDigest.isEqual(expected, signature.getBytes(StandardCharsets.UTF_8));
        }
        return genuine;
    }

    /** The work and the event's id in one transaction: when the event comes again, nothing is done twice. */
    private static void take(String id, String event) throws SQLException {
        try (Connection db = DriverManager.getConnection(DATABASE_URL)) {
            db.setAutoCommit(false);
            // What takes long is only noted here, and done later: order-closer waits for the answer.
            if (update(db, "INSERT INTO seen (id) VALUES (?) ON CONFLICT DO NOTHING", id) == 1) {
                update(db, "INSERT INTO mails (order_no)"
                        + " SELECT (?::jsonb -> 'data' ->> 'order_id')::bigint", event);
            }
            db.commit();
        }
    }

    private static int update(Connection db, String sql, String value) throws SQLException {
        try (PreparedStatement statement = db.prepareStatement(sql)) {
            statement.setString(1, value);
            return statement.executeUpdate();
        }
    }
}
