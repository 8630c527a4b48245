package interop;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.common.BoundaryType;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.common.sysflag.MessageSysFlag;
import org.apache.rocketmq.common.topic.TopicValidator;
import org.apache.rocketmq.remoting.protocol.heartbeat.SubscriptionData;
import org.apache.rocketmq.store.DefaultMessageFilter;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.MessageArrivingListener;
import org.apache.rocketmq.store.MessageFilter;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/** What is named or built differently in RocketMQ 5. */
final class Generation {
    private Generation() {
    }

    /** A message as the store takes it. */
    static final class Inner extends MessageExtBrokerInner {
        private static final long serialVersionUID = 1L;
    }

    static DefaultMessageStore newStore(MessageStoreConfig config, BrokerConfig broker, MessageArrivingListener listener) throws Exception {
        return new DefaultMessageStore(config, new BrokerStatsManager(broker), listener, broker, new ConcurrentHashMap<>());
    }

    /** In RocketMQ 5 the broker sends a delayed message to its level's queue, in a hook before the store. */
    static void delay(Inner message, int maxLevel) {
        int type = MessageSysFlag.getTransactionValue(message.getSysFlag());
        boolean visible = type == MessageSysFlag.TRANSACTION_NOT_TYPE || type == MessageSysFlag.TRANSACTION_COMMIT_TYPE;
        if (!visible || message.getDelayTimeLevel() <= 0) {
            return;
        }
        if (message.getDelayTimeLevel() > maxLevel) {
            message.setDelayTimeLevel(maxLevel);
        }
        MessageAccessor.putProperty(message, MessageConst.PROPERTY_REAL_TOPIC, message.getTopic());
        MessageAccessor.putProperty(message, MessageConst.PROPERTY_REAL_QUEUE_ID, String.valueOf(message.getQueueId()));
        message.setTopic(TopicValidator.RMQ_SYS_SCHEDULE_TOPIC);
        message.setQueueId(message.getDelayTimeLevel() - 1);
    }

    /** 5.4 brought the limit. */
    static void setRecoverFiles(MessageStoreConfig config, int files) throws ReflectiveOperationException {
        for (var method : MessageStoreConfig.class.getMethods()) {
            if (method.getName().equals("setCommitLogRecoverMaxNum")) {
                method.invoke(config, files);
            }
        }
    }

    static void setVerifyCrc(MessageStoreConfig config, boolean isVerified) {
        config.setForceVerifyPropCRC(isVerified);
    }

    static MessageFilter filter(String topic, String expression, Iterable<String> tags) {
        SubscriptionData subscription = new SubscriptionData(topic, expression);
        for (String tag : tags) {
            subscription.getTagsSet().add(tag);
            subscription.getCodeSet().add(tag.hashCode());
        }
        return new DefaultMessageFilter(subscription);
    }

    static long offsetAt(DefaultMessageStore store, String topic, int queue, long time, String side) {
        return store.getOffsetInQueueByTime(topic, queue, time, BoundaryType.valueOf(side));
    }

    /** The size of a record that passes the check of recovery, its body's checksum included; 0 for one that ends a segment. */
    static int check(DefaultMessageStore store, ByteBuffer message) throws IOException {
        int at = message.position();
        var checked = store.getCommitLog().checkMessageAndReturnSize(message, true, false, true);
        if (!checked.isSuccess()) {
            throw new IOException("RocketMQ does not accept the record of " + message.getInt(at) + " bytes");
        }
        return checked.getMsgSize();
    }

    /** Physical offset, size and tags code of an entry; null where there is none. */
    static long[] entry(DefaultMessageStore store, String topic, int queue, long offset) {
        var unit = store.getConsumeQueueTable().get(topic).get(queue).get(offset);
        return unit == null ? null : new long[] {unit.getPos(), unit.getSize(), unit.getTagsCode()};
    }
}
