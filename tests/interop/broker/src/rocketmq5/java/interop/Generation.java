package interop;

import io.netty.channel.ChannelHandlerContext;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.client.impl.MQClientAPIImpl;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.RequestCode;
import org.apache.rocketmq.remoting.protocol.header.ConsumerSendMsgBackRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.EndTransactionRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.UpdateConsumerOffsetRequestHeader;
import org.apache.rocketmq.remoting.protocol.subscription.SubscriptionGroupConfig;
import org.apache.rocketmq.store.PutMessageResult;

/** What is named or built differently in a broker of RocketMQ 5. */
final class Generation {
    /** The methods of a store that remove old files. */
    static final String[] CLEANING = {"cleanFilesPeriodically", "cleanQueueFilesPeriodically"};

    private Generation() {
    }

    static NettyServerConfig onFreePort() {
        NettyServerConfig server = new NettyServerConfig();
        server.setBindAddress("127.0.0.1");
        server.setListenPort(0);
        return server;
    }

    static void setAttribute(TopicConfig config, String name, String value) {
        config.getAttributes().put("+" + name, value);
    }

    static void setTimer(Message message, long delay) {
        message.setDelayTimeMs(delay);
    }

    static String recallHandle(SendResult result) {
        return result.getRecallHandle();
    }

    static void recall(DefaultMQProducer producer, String topic, String handle) throws Exception {
        producer.recallMessage(topic, handle);
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

    static void startDelivery(BrokerController broker) {
        broker.getScheduleMessageService().start();
    }

    static void stopDelivery(BrokerController broker) {
        broker.getScheduleMessageService().shutdown();
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
        RemotingCommand answer = broker.getSendMessageProcessor().processRequest(null, request);
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
        RemotingCommand answer = broker.getEndTransactionProcessor().processRequest(channel, request);
        if (answer.getCode() != 0) {
            throw new IllegalStateException(answer.toString());
        }
    }
}
