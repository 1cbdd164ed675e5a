package org.apache.rocketmq.client.apis.consumer;

import org.apache.rocketmq.client.apis.message.MessageView;

/** As in RocketMQ's client 5. */
public interface MessageListener {
    ConsumeResult consume(MessageView message);
}
