package org.apache.rocketmq.client.apis.message;

import java.nio.ByteBuffer;

/** As much of RocketMQ's as the client uses. */
public interface MessageView {
    ByteBuffer getBody();
}
