import java.nio.charset.StandardCharsets;
import java.util.Iterator;
import org.redisson.api.RBlockingQueue;
import org.redisson.api.RedissonClient;

/** A queue of the lines of standard input. Whoever asks for the next has been through with the one before, which is printed. */
final class DriveRedisson implements RedissonClient {
    private final Iterator<String> lines;
    private String before;

    private DriveRedisson(Iterator<String> lines) {
        this.lines = lines;
    }

    public static void main(String[] arguments) throws Exception {
        HintsFromRedisson.run(new DriveRedisson(new String(System.in.readAllBytes(), StandardCharsets.UTF_8).lines().iterator()));
    }

    @Override
    @SuppressWarnings("unchecked")
    public <V> RBlockingQueue<V> getBlockingQueue(String name) {
        return () -> {
            if (before != null) {
                System.out.println(before);
            }
            if (!lines.hasNext()) {
                System.exit(0);
            }
            before = lines.next();
            return (V) before;
        };
    }

    @Override
    public <V> Object getDelayedQueue(RBlockingQueue<V> queue) {
        return queue;
    }
}
