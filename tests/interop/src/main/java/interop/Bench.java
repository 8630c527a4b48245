package interop;

import java.net.InetSocketAddress;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.PutMessageStatus;

/** Measures puts, one after another from one thread, until they are stored, and until they are durable and dispatched. */
final class Bench {
    /** Enough for the compiler to have seen everything. */
    private static final int WARM_UP = 100_000;

    private final DefaultMessageStore store;
    private final byte[] body;

    Bench(DefaultMessageStore store, int size) {
        this.store = store;
        this.body = new byte[size];
    }

    /** {@code argument} is "bytes of a body,messages of a round,rounds"; gives nanoseconds a message, the medians of all rounds. */
    static Map<String, Object> run(DefaultMessageStore store, String argument) throws InterruptedException {
        String[] numbers = argument.split(",");
        int count = Integer.parseInt(numbers[1]);
        Bench bench = new Bench(store, Integer.parseInt(numbers[0]));
        new Bench(store, 100).round(WARM_UP);
        bench.round(count);
        List<Double> stored = new ArrayList<>();
        List<Double> durable = new ArrayList<>();
        for (int round = 0; round < Integer.parseInt(numbers[2]); round++) {
            double[] nanoseconds = bench.round(count);
            stored.add(nanoseconds[0]);
            durable.add(nanoseconds[1]);
        }
        return Harness.line("body", bench.body.length, "messages", count, "append_ns", median(stored), "durable_ns", median(durable));
    }

    private double[] round(int count) throws InterruptedException {
        long start = System.nanoTime();
        putAll(count);
        long stored = System.nanoTime();
        store.flush();
        while (store.dispatchBehindBytes() > 0) {
            Thread.sleep(1);
        }
        return new double[] {(stored - start) / (double) count, (System.nanoTime() - start) / (double) count};
    }

    private void putAll(int count) {
        var host = new InetSocketAddress("127.0.0.1", 10911);
        for (int i = 0; i < count; i++) {
            Generation.Inner message = new Generation.Inner();
            message.setTopic("orders");
            message.setQueueId(0);
            message.setBody(body);
            message.setBornTimestamp(System.currentTimeMillis());
            message.setBornHost(host);
            message.setStoreHost(host);
            message.setKeys("order-1");
            message.setTags("paid");
            message.setPropertiesString(MessageDecoder.messageProperties2String(message.getProperties()));
            var status = store.putMessage(message).getPutMessageStatus();
            if (status != PutMessageStatus.PUT_OK) {
                throw new IllegalStateException("put " + i + ": " + status);
            }
        }
    }

    private static double median(List<Double> values) {
        return values.stream().sorted().skip(values.size() / 2).findFirst().orElseThrow();
    }
}
