package interop;

import com.google.gson.Gson;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Consumer;
import java.util.zip.CRC32;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.impl.MQClientAPIImpl;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** RocketMQ's own producer and consumer, and what an administrator asks of a broker. */
final class Clients {
    private static final int PRODUCERS = 2;
    static final String BROKER_NAME = "broker";
    private static final long TIMEOUT_MS = 30_000;
    /** Of a producer, between two messages: readers on few cores keep up. */
    private static final long PAUSE_NS = 2_000_000;
    private static final String[] TAGS = {"paid", "open", "refund"};

    /** A message to send. */
    static final class Put {
        String topic;
        int queue;
        String tags;
        String keys;
        String body;
        /** How long a timer waits; 0 for no timer. */
        long delay_ms;
        /** The end of its transaction, a name of {@link LocalTransactionState}; null for a message without one. */
        String transaction;
        Map<String, String> properties = Map.of();
    }

    private static final Gson GSON = new Gson();

    private final String brokerAddress;
    private final Consumer<Object> out;
    private final DefaultMQProducer producer;
    private final DefaultMQPullConsumer consumer;
    private final List<Thread> sending = new ArrayList<>();
    private volatile boolean isResting;
    private TransactionMQProducer transactionProducer;

    Clients(String nameServer, String brokerAddress, Consumer<Object> out) throws Exception {
        this.brokerAddress = brokerAddress;
        this.out = out;
        producer = new DefaultMQProducer("producers");
        producer.setNamesrvAddr(nameServer);
        // A message that is sent twice is two messages.
        producer.setRetryTimesWhenSendFailed(0);
        producer.start();
        consumer = new DefaultMQPullConsumer("consumers");
        consumer.setNamesrvAddr(nameServer);
        consumer.start();
    }

    void close() {
        if (transactionProducer != null) {
            transactionProducer.shutdown();
        }
        consumer.shutdown();
        producer.shutdown();
    }

    /** The attributes are such as {@code cleanup.policy=COMPACTION}. */
    void create(String topic, int queues, String... attributes) throws Exception {
        TopicConfig config = new TopicConfig(topic, queues, queues, 6);
        for (String attribute : attributes) {
            String[] pair = attribute.split("=", 2);
            Generation.setAttribute(config, pair[0], pair[1]);
        }
        api().createTopic(brokerAddress, "TBW102", config, TIMEOUT_MS);
    }

    /** Sends one message, and says where it is stored. A half message stays open unless its end is given. */
    void put(String json) throws Exception {
        Put put = GSON.fromJson(json, Put.class);
        Message message = new Message(put.topic, put.tags, put.keys, put.body.getBytes(StandardCharsets.UTF_8));
        if (put.delay_ms > 0) {
            Generation.setTimer(message, put.delay_ms);
        }
        put.properties.forEach((name, value) -> MessageAccessor.putProperty(message, name, value));
        SendResult result = put.transaction == null
            ? producer.send(message, new MessageQueue(put.topic, BROKER_NAME, put.queue), TIMEOUT_MS)
            : transactions().sendMessageInTransaction(message, put.transaction);
        if (result.getSendStatus() != SendStatus.SEND_OK) {
            throw new IllegalStateException(result.toString());
        }
        out.accept(line(
            "topic", put.topic,
            "queue_id", result.getMessageQueue().getQueueId(),
            "queue_offset", result.getQueueOffset(),
            "unique_key", result.getMsgId(),
            "keys", put.keys,
            "transaction", put.transaction,
            "recall_handle", Generation.recallHandle(result)));
    }

    /** Recalls a timer message. */
    void recall(String topic, String handle) throws Exception {
        Generation.recall(producer, topic, handle);
    }

    /**
     * Made when the first half message is sent. A question about an open transaction is answered with the property {@code answer} of the
     * half message, a name of {@link LocalTransactionState}. Without one the broker learns nothing.
     */
    private TransactionMQProducer transactions() throws Exception {
        if (transactionProducer == null) {
            transactionProducer = new TransactionMQProducer("transactions");
            transactionProducer.setNamesrvAddr(producer.getNamesrvAddr());
            transactionProducer.setTransactionListener(new TransactionListener() {
                @Override
                public LocalTransactionState executeLocalTransaction(Message half, Object end) {
                    return LocalTransactionState.valueOf((String) end);
                }

                @Override
                public LocalTransactionState checkLocalTransaction(MessageExt half) {
                    String answer = half.getProperty("answer");
                    return answer == null ? LocalTransactionState.UNKNOW : LocalTransactionState.valueOf(answer);
                }
            });
            transactionProducer.start();
        }
        return transactionProducer;
    }

    /** Makes a consumer group, and says how far it has come. */
    void progress(String group, String topic, int queue, long offset) throws Exception {
        Generation.createGroup(api(), brokerAddress, group, TIMEOUT_MS);
        Generation.commit(api(), brokerAddress, group, new MessageQueue(topic, BROKER_NAME, queue), offset, TIMEOUT_MS);
    }

    void delete(String topic) throws Exception {
        api().deleteTopicInBroker(brokerAddress, topic, TIMEOUT_MS);
    }

    private MQClientAPIImpl api() {
        return producer.getDefaultMQProducerImpl().getMqClientFactory().getMQClientAPIImpl();
    }

    /** Sends messages with consecutive numbers: {@code send FIRST TOPIC QUEUES TOPIC QUEUES ...}. */
    void send(String[] words) {
        isResting = false;
        AtomicLong next = new AtomicLong(Long.parseLong(words[1]));
        for (int i = 0; i < PRODUCERS; i++) {
            Thread thread = new Thread(() -> {
                while (!isResting) {
                    long number = next.getAndIncrement();
                    int topics = (words.length - 2) / 2;
                    int at = 2 + (int) (number % topics) * 2;
                    int queue = (int) (number / topics % Integer.parseInt(words[at + 1]));
                    send(number, words[at], queue);
                    LockSupport.parkNanos(PAUSE_NS);
                }
            });
            thread.start();
            sending.add(thread);
        }
    }

    void rest() throws InterruptedException {
        isResting = true;
        for (Thread thread : sending) {
            thread.join();
        }
        sending.clear();
    }

    /** One that fails is not acknowledged, and may have been stored all the same. */
    private void send(long number, String topic, int queue) {
        try {
            SendResult result = producer.send(message(number, topic), new MessageQueue(topic, BROKER_NAME, queue), TIMEOUT_MS);
            if (result.getSendStatus() == SendStatus.SEND_OK) {
                out.accept(line(
                    "acked", number,
                    "topic", topic,
                    "queue_id", queue,
                    "queue_offset", result.getQueueOffset(),
                    "physical_offset", MessageDecoder.decodeMessageId(result.getOffsetMsgId()).getOffset(),
                    "message_id", result.getOffsetMsgId(),
                    "unique_key", result.getMsgId()));
            }
        } catch (Exception refused) {
            return;
        }
    }

    /** Its body begins with its number and the checksum of the rest. */
    private static Message message(long number, String topic) {
        Random random = new Random(number);
        // Some bodies are compressed.
        byte[] filler = new byte[number % 64 == 0 ? 6_000 : random.nextInt(900)];
        random.nextBytes(filler);
        if (number % 128 == 0) {
            Arrays.fill(filler, (byte) 'x');
        }
        CRC32 crc = new CRC32();
        crc.update(filler);
        byte[] head = String.format("%d %08x ", number, crc.getValue()).getBytes(StandardCharsets.US_ASCII);
        byte[] body = Arrays.copyOf(head, head.length + filler.length);
        System.arraycopy(filler, 0, body, head.length, filler.length);
        Message message = new Message(topic, TAGS[(int) (number % TAGS.length)], "k" + number, body);
        message.putUserProperty("check", Long.toHexString(crc.getValue()));
        message.putUserProperty("long", "v".repeat(1 + (int) (number % 300)));
        return message;
    }

    /** Tells every message of every queue of a topic, in the order of each queue. */
    void consume(String topic, String tags) throws Exception {
        List<MessageQueue> queues = new ArrayList<>(consumer.fetchSubscribeMessageQueues(topic));
        Collections.sort(queues);
        for (MessageQueue queue : queues) {
            long end = consumer.maxOffset(queue);
            for (long next = consumer.minOffset(queue); next < end; ) {
                PullResult pulled = consumer.pull(queue, tags, next, 32);
                if (pulled.getMsgFoundList() != null) {
                    pulled.getMsgFoundList().forEach(this::tell);
                }
                next = pulled.getNextBeginOffset();
            }
        }
    }

    private void tell(MessageExt message) {
        CRC32 crc = new CRC32();
        crc.update(message.getBody());
        out.accept(line(
            "topic", message.getTopic(),
            "queue_id", message.getQueueId(),
            "queue_offset", message.getQueueOffset(),
            "physical_offset", message.getCommitLogOffset(),
            "store_size", message.getStoreSize(),
            "store_time", message.getStoreTimestamp(),
            "born_time", message.getBornTimestamp(),
            "body_crc32", crc.getValue(),
            "properties", message.getProperties()));
    }

    /** A line of named values, in their order. */
    static Map<String, Object> line(Object... namesAndValues) {
        Map<String, Object> line = new LinkedHashMap<>();
        for (int i = 0; i < namesAndValues.length; i += 2) {
            line.put((String) namesAndValues[i], namesAndValues[i + 1]);
        }
        return line;
    }
}
