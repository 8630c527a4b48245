package interop;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.PutMessageStatus;
import org.apache.rocketmq.store.QueryMessageResult;

/** Measures puts and reads, a round for each question. Each producer has a queue and a clock of its own. */
final class Bench {
    /** Enough for the compiler to have seen everything. */
    private static final int WARM_UP = 100_000;
    /** Between two messages of {@code visible}: the store is idle then. */
    private static final long GAP_NS = 300_000;
    /** As many as a consumer asks for by default. */
    private static final int PULLED = 32;

    private final DefaultMessageStore store;
    private final InetSocketAddress host = new InetSocketAddress("127.0.0.1", 10911);
    /** Bytes, so that no copy is left out. */
    private long copied;

    Bench(DefaultMessageStore store) {
        this.store = store;
    }

    /** Where the answers go. */
    interface Answers {
        void add(Object answer) throws IOException;
    }

    /** Warms up a store that is empty, says so, and answers each line of the standard input. */
    void answer(Answers answers, boolean isSync) throws Exception {
        if (store.getMaxPhyOffset() == 0) {
            put(100, 1, WARM_UP, isSync ? 2000 : 0);
        }
        answers.add(Map.of("ready", true));
        var questions = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String question = questions.readLine(); question != null; question = questions.readLine()) {
            String[] parts = question.split("=", 2);
            switch (parts[0]) {
                case "visible":
                    answers.add(visible(parts[1]));
                    break;
                case "query":
                    answers.add(query(Integer.parseInt(parts[1])));
                    break;
                case "pull":
                    answers.add(pull(Integer.parseInt(parts[1])));
                    break;
                default:
                    answers.add(put(parts[1]));
            }
        }
    }

    /** One query for each of the keys order-0, order-1, ..., in no order. Each has one message. */
    private Map<String, Object> query(int keys) {
        List<String> wanted = IntStream.range(0, keys).mapToObj(n -> "order-" + n).collect(Collectors.toList());
        Collections.shuffle(wanted, new Random(1));
        long begun = System.nanoTime();
        for (String key : wanted) {
            QueryMessageResult result = store.queryMessage("orders", key, 64, 0, Long.MAX_VALUE);
            copy(result.getMessageBufferList(), 1);
            result.release();
        }
        return Harness.line("messages", keys, "ns", System.nanoTime() - begun);
    }

    /** So many messages from the start of queue 0, as consumers pull them. */
    private Map<String, Object> pull(int messages) {
        long begun = System.nanoTime();
        for (long next = 0; next < messages; ) {
            GetMessageResult result = store.getMessage("bench", "orders", 0, next, PULLED, null);
            copy(result.getMessageBufferList(), (int) Math.min(PULLED, messages - next));
            result.release();
            next = result.getNextBeginOffset();
        }
        return Harness.line("messages", messages, "ns", System.nanoTime() - begun);
    }

    private void copy(List<ByteBuffer> messages, int expected) {
        if (messages.size() != expected) {
            throw new IllegalStateException(messages.size() + " messages were found, not " + expected);
        }
        for (ByteBuffer message : messages) {
            byte[] bytes = new byte[message.remaining()];
            message.get(bytes);
            copied += bytes.length;
        }
    }

    /** {@code argument} is "bytes of a body,producers,messages,milliseconds": puts until there are so many, or until the time is over. */
    Map<String, Object> put(String argument) throws InterruptedException {
        long[] numbers = Arrays.stream(argument.split(",")).mapToLong(Long::parseLong).toArray();
        return put((int) numbers[0], (int) numbers[1], numbers[2], numbers[3]);
    }

    private Map<String, Object> put(int size, int producers, long messages, long milliseconds) throws InterruptedException {
        byte[] body = new byte[size];
        long[] counts = new long[producers];
        long[] begun = new long[producers];
        long[] ended = new long[producers];
        AtomicInteger failed = new AtomicInteger();
        CountDownLatch start = new CountDownLatch(producers);
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < producers; i++) {
            int producer = i;
            Thread thread = new Thread(() -> {
                start.countDown();
                awaitAll(start);
                begun[producer] = System.nanoTime();
                long deadline = milliseconds == 0 ? Long.MAX_VALUE : begun[producer] + TimeUnit.MILLISECONDS.toNanos(milliseconds);
                long most = Math.max(1, messages / producers);
                long count = 0;
                while (count < most && (milliseconds == 0 || System.nanoTime() < deadline)) {
                    if (!put(body, producer)) {
                        failed.incrementAndGet();
                        return;
                    }
                    count++;
                }
                ended[producer] = System.nanoTime();
                counts[producer] = count;
            });
            threads.add(thread);
            thread.start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
        if (failed.get() > 0) {
            throw new IllegalStateException(failed + " of " + producers + " producers could not put");
        }
        long ns = Arrays.stream(ended).max().getAsLong() - Arrays.stream(begun).min().getAsLong();
        settle();
        return Harness.line("messages", Arrays.stream(counts).sum(), "ns", ns);
    }

    /** {@code argument} is "bytes of a body,messages": the median time from the start of a put until its message is in its queue. */
    private Map<String, Object> visible(String argument) throws Exception {
        String[] numbers = argument.split(",");
        byte[] body = new byte[Integer.parseInt(numbers[0])];
        long[] times = new long[Integer.parseInt(numbers[1])];
        long next = store.getMaxOffsetInQueue("orders", 0);
        for (int i = 0; i < times.length; i++) {
            LockSupport.parkNanos(GAP_NS);
            long start = System.nanoTime();
            if (!put(body, 0)) {
                throw new IllegalStateException("put " + i + " failed");
            }
            next++;
            while (store.getMaxOffsetInQueue("orders", 0) < next) {
                Thread.onSpinWait();
            }
            times[i] = System.nanoTime() - start;
        }
        Arrays.sort(times);
        return Harness.line("median_ns", times[times.length / 2]);
    }

    private boolean put(byte[] body, int queue) {
        Generation.Inner message = new Generation.Inner();
        message.setTopic("orders");
        message.setQueueId(queue);
        message.setBody(body);
        message.setBornTimestamp(System.currentTimeMillis());
        message.setBornHost(host);
        message.setStoreHost(host);
        message.setKeys("order-1");
        message.setTags("paid");
        message.setPropertiesString(MessageDecoder.messageProperties2String(message.getProperties()));
        return store.putMessage(message).getPutMessageStatus() == PutMessageStatus.PUT_OK;
    }

    /** So that nothing of this round is left for whoever is measured next. */
    private void settle() throws InterruptedException {
        store.flush();
        while (store.dispatchBehindBytes() > 0) {
            Thread.sleep(1);
        }
    }

    private static void awaitAll(CountDownLatch start) {
        try {
            start.await();
        } catch (InterruptedException interrupted) {
            throw new IllegalStateException(interrupted);
        }
    }
}
