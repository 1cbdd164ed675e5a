package org.apache.rocketmq.client.apis.consumer;

/** As in RocketMQ's client 5. */
public enum ConsumeResult {
    SUCCESS,
    FAILURE
}
