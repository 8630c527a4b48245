package interop;

import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.zip.CRC32;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.SelectMappedBufferResult;

/**
 * Prints what RocketMQ reads: a line for each message of each queue, through the queue; then one for each record of the log that is
 * in no queue ("unqueued": true), found by walking the log; then one for each queue with its bounds and entries; then the log's.
 */
final class Dump {
    /** RocketMQ gives no more at once by default. */
    private static final int MESSAGES_AT_ONCE = 32;

    @FunctionalInterface
    interface Printer {
        void print(Object line) throws IOException;
    }

    private final DefaultMessageStore store;
    private final Printer out;
    private final Set<Long> queued = new HashSet<>();

    Dump(DefaultMessageStore store, Printer out) {
        this.store = store;
        this.out = out;
    }

    void run() throws IOException {
        Map<String, List<Integer>> queues = queues();
        for (var topic : queues.entrySet()) {
            for (int queue : topic.getValue()) {
                printMessages(topic.getKey(), queue);
            }
        }
        long end = printUnqueued();
        for (var topic : queues.entrySet()) {
            for (int queue : topic.getValue()) {
                printQueue(topic.getKey(), queue);
            }
        }
        out.print(Harness.line(
            "min_physical_offset", store.getMinPhyOffset(), "max_physical_offset", store.getMaxPhyOffset(), "walked_to", end));
    }

    private Map<String, List<Integer>> queues() {
        Map<String, List<Integer>> sorted = new TreeMap<>();
        for (var topic : store.getConsumeQueueTable().entrySet()) {
            List<Integer> ids = new ArrayList<>(topic.getValue().keySet());
            Collections.sort(ids);
            sorted.put(topic.getKey(), ids);
        }
        return sorted;
    }

    private void printMessages(String topic, int queue) throws IOException {
        var bounds = store.getConsumeQueueTable().get(topic).get(queue);
        long at = bounds.getMinOffsetInQueue();
        while (at < bounds.getMaxOffsetInQueue()) {
            GetMessageResult got = store.getMessage("interop", topic, queue, at, MESSAGES_AT_ONCE, null);
            for (ByteBuffer bytes : got.getMessageBufferList()) {
                MessageExt message = decode(bytes);
                queued.add(message.getCommitLogOffset());
                out.print(fields(message));
            }
            if (got.getNextBeginOffset() <= at) {
                throw new IOException("RocketMQ stays at " + at + " of " + topic + "/" + queue + ": " + got.getStatus());
            }
            at = got.getNextBeginOffset();
            got.release();
        }
    }

    /** Walks the log and checks each record; returns where it ends. */
    private long printUnqueued() throws IOException {
        long at = store.getMinPhyOffset();
        while (at < store.getMaxPhyOffset()) {
            SelectMappedBufferResult rest = store.getCommitLogData(at);
            if (rest == null) {
                throw new IOException("RocketMQ has no bytes at " + at);
            }
            int size = Generation.check(store, rest.getByteBuffer().slice());
            if (size > 0 && !queued.contains(at)) {
                Map<String, Object> line = fields(decode(rest.getByteBuffer().slice()));
                line.put("unqueued", true);
                out.print(line);
            }
            at += size > 0 ? size : rest.getByteBuffer().remaining();
            rest.release();
        }
        return at;
    }

    private void printQueue(String topic, int queue) throws IOException {
        var bounds = store.getConsumeQueueTable().get(topic).get(queue);
        long min = bounds.getMinOffsetInQueue();
        long max = bounds.getMaxOffsetInQueue();
        List<long[]> entries = new ArrayList<>();
        for (long at = min; at < max; at++) {
            entries.add(Generation.entry(store, topic, queue, at));
        }
        out.print(Harness.line("queue", topic + "/" + queue, "min", min, "max", max, "entries", entries));
    }

    static MessageExt decode(ByteBuffer bytes) throws IOException {
        int at = bytes.position();
        MessageExt message = MessageDecoder.decode(bytes, true, false); // the body as it is stored
        if (message == null) {
            throw new IOException("RocketMQ does not decode the record at " + bytes.getLong(at + 28));
        }
        return message;
    }

    static Map<String, Object> fields(MessageExt message) {
        byte[] body = message.getBody() == null ? new byte[0] : message.getBody();
        CRC32 crc = new CRC32();
        crc.update(body);
        return Harness.line(
            "topic", message.getTopic(),
            "queue_id", message.getQueueId(),
            "queue_offset", message.getQueueOffset(),
            "physical_offset", message.getCommitLogOffset(),
            "store_size", message.getStoreSize(),
            "store_time", message.getStoreTimestamp(),
            "born_time", message.getBornTimestamp(),
            "sys_flag", message.getSysFlag(),
            "flag", message.getFlag(),
            "reconsume_times", message.getReconsumeTimes(),
            "prepared_transaction_offset", message.getPreparedTransactionOffset(),
            "born_host", host(message.getBornHost()),
            "store_host", host(message.getStoreHost()),
            "message_id", message.getMsgId(),
            "body_len", body.length,
            "body_crc32", crc.getValue(),
            "properties", message.getProperties() == null ? Map.of() : new TreeMap<>(message.getProperties()));
    }

    private static String host(java.net.SocketAddress host) {
        InetSocketAddress address = (InetSocketAddress) host;
        return address.getAddress().getHostAddress() + ":" + address.getPort();
    }
}
