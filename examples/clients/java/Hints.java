import java.io.IOException;
import java.net.URI;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.time.Duration;

/** Hands hints to order-closer. */
final class Hints {
    private static final HttpClient HTTP = HttpClient.newHttpClient();

    /** Returns when the daemon has looked at the order; also at one that is paid, not due, or unknown. */
    static void look(String order) throws IOException, InterruptedException {
        String id = URLEncoder.encode(order, StandardCharsets.UTF_8).replace("+", "%20");
        String url = System.getenv("CLOSER_URL") + "/orders/" + id + "/close";
        HttpRequest question = HttpRequest.newBuilder(URI.create(url)).timeout(Duration.ofSeconds(30))
                .header("Authorization", "Bearer " + System.getenv("CLOSER_TOKEN"))
                .POST(HttpRequest.BodyPublishers.noBody()).build();
        HttpResponse<String> answer = HTTP.send(question, HttpResponse.BodyHandlers.ofString());
        // Asked too much; or paused, away, held by a payment: there was no look yet.
        while (answer.statusCode() == 429 || answer.statusCode() == 503) {
            Thread.sleep(1000 * answer.headers().firstValueAsLong("Retry-After").orElse(1));
            answer = HTTP.send(question, HttpResponse.BodyHandlers.ofString());
        }
        if (!answer.body().contains("\"outcome\"")) {
            throw new IOException(url + ": " + answer.statusCode() + " " + answer.body());
        }
    }
}
