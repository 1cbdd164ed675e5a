import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;

/** Hands the lines of standard input to the listener, as a broker does. Those that it takes are printed. */
final class DriveRocketMq {
    public static void main(String[] arguments) throws Exception {
        HintsFromRocketMq listener = new HintsFromRocketMq();
        for (String line : new String(System.in.readAllBytes(), StandardCharsets.UTF_8).lines().toList()) {
            if (listener.consume(() -> ByteBuffer.wrap(line.getBytes(StandardCharsets.UTF_8))) == ConsumeResult.FAILURE) {
                System.exit(1);
            }
            System.out.println(line);
        }
    }
}
