package interop;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.SelectMappedBufferResult;

/**
 * Prints what is left of a store that may have lost something: a line for each record of the log, then one with the queue offsets
 * that give a consumer a message: topic, queue, offset, and where the message says that it is. What {@link Dump} takes for an error
 * is left out here.
 */
final class Survey {
    private final DefaultMessageStore store;
    private final Dump.Printer out;

    Survey(DefaultMessageStore store, Dump.Printer out) {
        this.store = store;
        this.out = out;
    }

    void run() throws IOException {
        printRecords();
        List<Object[]> served = new ArrayList<>();
        for (var topic : store.getConsumeQueueTable().entrySet()) {
            for (var queue : topic.getValue().entrySet()) {
                long max = queue.getValue().getMaxOffsetInQueue();
                for (long at = queue.getValue().getMinOffsetInQueue(); at < max; at++) {
                    for (long physicalOffset : served(topic.getKey(), queue.getKey(), at)) {
                        served.add(new Object[] {topic.getKey(), queue.getKey(), at, physicalOffset});
                    }
                }
            }
        }
        out.print(served);
    }

    private List<Long> served(String topic, int queue, long at) {
        List<Long> found = new ArrayList<>();
        GetMessageResult got = store.getMessage("interop", topic, queue, at, 1, null);
        for (ByteBuffer bytes : got.getMessageBufferList()) {
            try {
                found.add(Dump.decode(bytes).getCommitLogOffset());
            } catch (IOException | RuntimeException noMessage) {
                continue;
            }
        }
        got.release();
        return found;
    }

    private void printRecords() throws IOException {
        long at = store.getMinPhyOffset();
        while (at < store.getMaxPhyOffset()) {
            SelectMappedBufferResult rest = store.getCommitLogData(at);
            if (rest == null) {
                return;
            }
            try {
                int size = Generation.check(store, rest.getByteBuffer().slice());
                if (size > 0) {
                    out.print(Dump.fields(Dump.decode(rest.getByteBuffer().slice())));
                }
                at += size > 0 ? size : rest.getByteBuffer().remaining();
            } catch (IOException damaged) {
                return;
            } finally {
                rest.release();
            }
        }
    }
}
