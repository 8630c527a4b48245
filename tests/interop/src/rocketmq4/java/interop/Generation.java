package interop;

import java.io.IOException;
import java.nio.ByteBuffer;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.protocol.heartbeat.SubscriptionData;
import org.apache.rocketmq.store.ConsumeQueue;
import org.apache.rocketmq.store.DefaultMessageFilter;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.MessageArrivingListener;
import org.apache.rocketmq.store.MessageExtBrokerInner;
import org.apache.rocketmq.store.MessageFilter;
import org.apache.rocketmq.store.SelectMappedBufferResult;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/** What is named or built differently in RocketMQ 4. */
final class Generation {
    private Generation() {
    }

    /** A message as the store takes it. */
    static final class Inner extends MessageExtBrokerInner {
        private static final long serialVersionUID = 1L;
    }

    static DefaultMessageStore newStore(MessageStoreConfig config, BrokerConfig broker, MessageArrivingListener listener) throws Exception {
        return new DefaultMessageStore(config, newStatistics(), listener, broker);
    }

    /** 4.9.1 takes a name only, 4.9.8 a name and whether it counts in detail. */
    private static BrokerStatsManager newStatistics() throws ReflectiveOperationException {
        for (var constructor : BrokerStatsManager.class.getConstructors()) {
            switch (constructor.getParameterCount()) {
                case 1:
                    return (BrokerStatsManager) constructor.newInstance("interop");
                case 2:
                    return (BrokerStatsManager) constructor.newInstance("interop", false);
                default:
            }
        }
        throw new NoSuchMethodException("BrokerStatsManager(String[, boolean])");
    }

    /** The store sends a delayed message to its level's queue itself. */
    static void delay(Inner message, int maxLevel) {
    }

    /** There is no limit. */
    static void setRecoverFiles(MessageStoreConfig config, int files) {
    }

    /** A checksum of the whole record is a property as any other. */
    static void setVerifyCrc(MessageStoreConfig config, boolean isVerified) {
    }

    static MessageFilter filter(String topic, String expression, Iterable<String> tags) {
        SubscriptionData subscription = new SubscriptionData(topic, expression);
        for (String tag : tags) {
            subscription.getTagsSet().add(tag);
            subscription.getCodeSet().add(tag.hashCode());
        }
        return new DefaultMessageFilter(subscription);
    }

    /** There is one lookup; it gives the nearest message. */
    static long offsetAt(DefaultMessageStore store, String topic, int queue, long time, String side) {
        return store.getOffsetInQueueByTime(topic, queue, time);
    }

    /** The size of a record that passes the check of recovery, its body's checksum included; 0 for one that ends a segment. */
    static int check(DefaultMessageStore store, ByteBuffer message) throws IOException {
        int at = message.position();
        var checked = store.getCommitLog().checkMessageAndReturnSize(message, true, true);
        if (!checked.isSuccess()) {
            throw new IOException("RocketMQ does not accept the record of " + message.getInt(at) + " bytes");
        }
        return checked.getMsgSize();
    }

    /** Physical offset, size and tags code of an entry; null where there is none. */
    static long[] entry(DefaultMessageStore store, String topic, int queue, long offset) {
        ConsumeQueue found = store.getConsumeQueueTable().get(topic).get(queue);
        SelectMappedBufferResult rest = found.getIndexBuffer(offset);
        if (rest == null) {
            return null;
        }
        try {
            var bytes = rest.getByteBuffer();
            return new long[] {bytes.getLong(), bytes.getInt(), bytes.getLong()};
        } finally {
            rest.release();
        }
    }
}
