package interop;

import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.UnknownHostException;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageExtBatch;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.PutMessageStatus;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/** Carries out the lines of a plan: puts, producer batches and pauses. */
final class Plan {
    /** One line. */
    private static final class Step {
        /** "put", "batch" or "sleep". */
        String op;
        int ms;
        String topic;
        int queue;
        /** In base64; of a batch: its units, as a producer sends them. */
        String body;
        int flag;
        int sys_flag;
        long born_time;
        String born_host;
        String store_host;
        int reconsume_times;
        long prepared_transaction_offset;
        LinkedHashMap<String, String> properties = new LinkedHashMap<>();
    }

    private final DefaultMessageStore store;
    private final int maxLevel;

    Plan(DefaultMessageStore store, MessageStoreConfig config) {
        this.store = store;
        this.maxLevel = config.getMessageDelayLevel().split(" ").length;
    }

    /** What RocketMQ says of the put; null for a pause. */
    Object carryOut(String line) throws Exception {
        Step step = Harness.GSON.fromJson(line, Step.class);
        switch (step.op) {
            case "put":
                return result(put(step));
            case "batch":
                return result(putBatch(step));
            case "sleep":
                Thread.sleep(step.ms);
                return null;
            default:
                throw new IllegalArgumentException("unknown step " + step.op);
        }
    }

    private PutMessageResult put(Step step) throws UnknownHostException {
        Generation.Inner message = new Generation.Inner();
        fill(message, step);
        Generation.delay(message, maxLevel);
        message.setPropertiesString(MessageDecoder.messageProperties2String(message.getProperties()));
        return store.putMessage(message);
    }

    private PutMessageResult putBatch(Step step) throws UnknownHostException {
        MessageExtBatch batch = new MessageExtBatch();
        fill(batch, step);
        return store.putMessages(batch);
    }

    private static void fill(MessageExt message, Step step) throws UnknownHostException {
        message.setTopic(step.topic);
        message.setQueueId(step.queue);
        message.setBody(Base64.getDecoder().decode(step.body));
        message.setFlag(step.flag);
        message.setSysFlag(step.sys_flag);
        message.setBornTimestamp(step.born_time);
        message.setBornHost(host(step.born_host));
        message.setStoreHost(host(step.store_host));
        message.setReconsumeTimes(step.reconsume_times);
        message.setPreparedTransactionOffset(step.prepared_transaction_offset);
        MessageAccessor.setProperties(message, new LinkedHashMap<>(step.properties));
    }

    private static InetSocketAddress host(String text) throws UnknownHostException {
        int colon = text.lastIndexOf(':');
        return new InetSocketAddress(InetAddress.getByName(text.substring(0, colon)), Integer.parseInt(text.substring(colon + 1)));
    }

    private static Map<String, Object> result(PutMessageResult result) {
        var append = result.getAppendMessageResult();
        if (result.getPutMessageStatus() != PutMessageStatus.PUT_OK || append == null) {
            return Harness.line("status", result.getPutMessageStatus().name());
        }
        return Harness.line(
            "status", result.getPutMessageStatus().name(),
            "physical_offset", append.getWroteOffset(),
            "queue_offset", append.getLogicsOffset(),
            "wrote_bytes", append.getWroteBytes(),
            "store_time", append.getStoreTimestamp(),
            "messages", append.getMsgNum(),
            "message_id", append.getMsgId());
    }
}
