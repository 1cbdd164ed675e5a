import java.io.IOException;
import org.redisson.api.RBlockingQueue;
import org.redisson.api.RedissonClient;

/** The orders of a delayed queue as hints. */
final class HintsFromRedisson {
    /** Until a question is refused, or its thread is interrupted. */
    static void run(RedissonClient redisson) throws IOException, InterruptedException {
        RBlockingQueue<String> due = redisson.getBlockingQueue("order-timeouts");
        // What is due goes from the delayed queue into this one only while some client has it.
        redisson.getDelayedQueue(due);
        while (true) {
            Hints.look(due.take());
        }
    }
}
