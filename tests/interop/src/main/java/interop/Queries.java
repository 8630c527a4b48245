package interop;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.MessageFilter;
import org.apache.rocketmq.store.QueryMessageResult;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/** Answers questions to a store, one a line. */
final class Queries {
    /** Where a record holds its physical offset. */
    private static final int PHYSICAL_OFFSET = 28;

    /** One line. */
    private static final class Question {
        /** "key", "time" or "get". */
        String op;
        String topic;
        String key;
        int queue;
        long offset;
        int max;
        long begin;
        long end;
        long time;
        /** Of equal times: LOWER is the first, UPPER the last. */
        String side;
        /** The number of messages to wait for: the index in RocksDB is written some time after the queues. */
        int least;
        /** Null for no filter. */
        List<String> tags;
        /** Percent of the memory within which messages count as cached. */
        int memory_ratio;
    }

    private final DefaultMessageStore store;
    private final MessageStoreConfig config;

    Queries(DefaultMessageStore store, MessageStoreConfig config) {
        this.store = store;
        this.config = config;
    }

    Object answer(String line) throws InterruptedException {
        Question question = Harness.GSON.fromJson(line, Question.class);
        switch (question.op) {
            case "key":
                return key(question);
            case "time":
                return Generation.offsetAt(store, question.topic, question.queue, question.time, question.side);
            case "get":
                return get(question);
            default:
                throw new IllegalArgumentException("unknown question " + question.op);
        }
    }

    /** Physical offsets of the messages that the index gives: those of other keys with the same hash, too. */
    private List<Long> key(Question question) throws InterruptedException {
        List<Long> offsets = keyNow(question);
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(20);
        while (offsets.size() < question.least && System.nanoTime() < deadline) {
            Thread.sleep(10);
            offsets = keyNow(question);
        }
        return offsets;
    }

    private List<Long> keyNow(Question question) {
        QueryMessageResult found = store.queryMessage(question.topic, question.key, question.max, question.begin, question.end);
        List<Long> offsets = physicalOffsets(found.getMessageBufferList());
        found.release();
        return offsets;
    }

    private Map<String, Object> get(Question question) {
        config.setAccessMessageInMemoryMaxRatio(question.memory_ratio);
        MessageFilter filter = question.tags == null
            ? null
            : Generation.filter(question.topic, String.join(" || ", question.tags), question.tags);
        GetMessageResult got =
            store.getMessage("interop", question.topic, question.queue, question.offset, question.max, filter);
        Map<String, Object> answer = Harness.line(
            "status", got.getStatus().name(),
            "next_begin_offset", got.getNextBeginOffset(),
            "min_offset", got.getMinOffset(),
            "max_offset", got.getMaxOffset(),
            "suggest_pulling_from_slave", got.isSuggestPullingFromSlave(),
            "physical_offsets", physicalOffsets(got.getMessageBufferList()));
        got.release();
        return answer;
    }

    private static List<Long> physicalOffsets(List<ByteBuffer> records) {
        List<Long> offsets = new ArrayList<>();
        for (ByteBuffer record : records) {
            offsets.add(record.getLong(record.position() + PHYSICAL_OFFSET));
        }
        return offsets;
    }
}
