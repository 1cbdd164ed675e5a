import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.MessageListener;
import org.apache.rocketmq.client.apis.message.MessageView;

/** RocketMQ's messages as hints: each is an order's id. For a PushConsumer's setMessageListener. */
final class HintsFromRocketMq implements MessageListener {
    @Override
    public ConsumeResult consume(MessageView message) {
        try {
            Hints.look(StandardCharsets.UTF_8.decode(message.getBody()).toString());
            return ConsumeResult.SUCCESS;
        } catch (Exception e) {
            // The broker delivers it again, and moves it aside when that was too often.
            return ConsumeResult.FAILURE;
        }
    }
}
