package interop;

import java.net.InetSocketAddress;
import java.util.Map;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.PutMessageStatus;

/** Measures puts from one thread. */
final class Bench {
    private static final int QUEUES = 4;

    private Bench() {
    }

    /** {@code argument} is "body bytes,messages"; a tenth more are put before, unmeasured. */
    static Map<String, Object> run(DefaultMessageStore store, String argument) {
        int size = Integer.parseInt(argument.split(",")[0]);
        int count = Integer.parseInt(argument.split(",")[1]);
        putAll(store, size, count / 10);
        long start = System.nanoTime();
        putAll(store, size, count);
        double seconds = (System.nanoTime() - start) / 1e9;
        return Harness.line("size", size, "count", count, "seconds", seconds, "puts_per_second", Math.round(count / seconds));
    }

    private static void putAll(DefaultMessageStore store, int size, int count) {
        byte[] body = new byte[size];
        var host = new InetSocketAddress("127.0.0.1", 10911);
        for (int i = 0; i < count; i++) {
            Generation.Inner message = new Generation.Inner();
            message.setTopic("bench");
            message.setQueueId(i % QUEUES);
            message.setBody(body);
            message.setBornTimestamp(System.currentTimeMillis());
            message.setBornHost(host);
            message.setStoreHost(host);
            message.setTags("tag");
            message.setPropertiesString(MessageDecoder.messageProperties2String(message.getProperties()));
            var status = store.putMessage(message).getPutMessageStatus();
            if (status != PutMessageStatus.PUT_OK) {
                throw new IllegalStateException("put " + i + ": " + status);
            }
        }
    }
}
