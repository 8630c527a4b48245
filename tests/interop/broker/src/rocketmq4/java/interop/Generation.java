package interop;

import io.netty.channel.ChannelHandlerContext;
import java.io.IOException;
import java.net.ServerSocket;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.broker.processor.EndTransactionProcessor;
import org.apache.rocketmq.broker.processor.SendMessageProcessor;
import org.apache.rocketmq.client.impl.MQClientAPIImpl;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.protocol.RequestCode;
import org.apache.rocketmq.common.protocol.header.ConsumerSendMsgBackRequestHeader;
import org.apache.rocketmq.common.protocol.header.EndTransactionRequestHeader;
import org.apache.rocketmq.common.protocol.header.UpdateConsumerOffsetRequestHeader;
import org.apache.rocketmq.common.subscription.SubscriptionGroupConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.store.MessageExtBrokerInner;
import org.apache.rocketmq.store.PutMessageResult;

/** What is named or built differently in a broker of RocketMQ 4. */
final class Generation {
    /** The methods of a store that remove old files. */
    static final String[] CLEANING = {"cleanFilesPeriodically"};

    private Generation() {
    }

    /** A broker tells the name server the port of its configuration, which must be a real one. It also uses the second port below. */
    static NettyServerConfig onFreePort() throws IOException {
        NettyServerConfig server = new NettyServerConfig();
        try (ServerSocket free = new ServerSocket(0)) {
            server.setListenPort(free.getLocalPort());
        }
        return server;
    }

    static void setAttribute(TopicConfig config, String name, String value) {
        throw new IllegalArgumentException("a topic has no attribute " + name);
    }

    static void setTimer(Message message, long delay) {
        throw new IllegalArgumentException("a message has no timer");
    }

    static String recallHandle(SendResult result) {
        return null;
    }

    static void recall(DefaultMQProducer producer, String topic, String handle) {
        throw new IllegalArgumentException("a message has no timer");
    }

    static void createGroup(MQClientAPIImpl api, String address, String group, long timeout) throws Exception {
        SubscriptionGroupConfig config = new SubscriptionGroupConfig();
        config.setGroupName(group);
        api.createSubscriptionGroup(address, config, timeout);
    }

    static void commit(MQClientAPIImpl api, String address, String group, MessageQueue queue, long offset, long timeout) throws Exception {
        UpdateConsumerOffsetRequestHeader progress = new UpdateConsumerOffsetRequestHeader();
        progress.setConsumerGroup(group);
        progress.setTopic(queue.getTopic());
        progress.setQueueId(queue.getQueueId());
        progress.setCommitOffset(offset);
        api.updateConsumerOffset(address, progress, timeout);
    }

    /** The store has started it. */
    static void startDelivery(BrokerController broker) {
    }

    /** The store stops it. */
    static void stopDelivery(BrokerController broker) {
    }

    /** Sends a message back, as the consumer of a group asks for it. */
    static void sendBack(BrokerController broker, String group, String topic, long physicalOffset, int level) throws Exception {
        ConsumerSendMsgBackRequestHeader header = new ConsumerSendMsgBackRequestHeader();
        header.setGroup(group);
        header.setOriginTopic(topic);
        header.setOffset(physicalOffset);
        header.setDelayLevel(level);
        RemotingCommand request = RemotingCommand.createRequestCommand(RequestCode.CONSUMER_SEND_MSG_BACK, header);
        request.makeCustomHeaderToNet();
        RemotingCommand answer = new SendMessageProcessor(broker).asyncProcessRequest(null, request).get();
        if (answer.getCode() != 0) {
            throw new IllegalStateException(answer.toString());
        }
    }

    /** Stores a half message of a producer. The message has the topic and queue that it is meant for. */
    static PutMessageResult prepare(BrokerController broker, MessageExt message) {
        MessageExtBrokerInner half = new MessageExtBrokerInner();
        half.setTopic(message.getTopic());
        half.setQueueId(message.getQueueId());
        half.setBody(message.getBody());
        half.setFlag(message.getFlag());
        half.setBornTimestamp(message.getBornTimestamp());
        half.setBornHost(message.getBornHost());
        half.setStoreHost(message.getStoreHost());
        MessageAccessor.setProperties(half, message.getProperties());
        return broker.getTransactionalMessageService().prepareMessage(half);
    }

    /** Ends a transaction, as a producer asks for it. */
    static void end(BrokerController broker, ChannelHandlerContext channel, String group, long queueOffset, long physicalOffset, int end)
        throws Exception {
        EndTransactionRequestHeader header = new EndTransactionRequestHeader();
        header.setProducerGroup(group);
        header.setTranStateTableOffset(queueOffset);
        header.setCommitLogOffset(physicalOffset);
        header.setCommitOrRollback(end);
        header.setFromTransactionCheck(false);
        RemotingCommand request = RemotingCommand.createRequestCommand(RequestCode.END_TRANSACTION, header);
        request.makeCustomHeaderToNet();
        RemotingCommand answer = new EndTransactionProcessor(broker).processRequest(channel, request);
        if (answer.getCode() != 0) {
            throw new IllegalStateException(answer.toString());
        }
    }
}
