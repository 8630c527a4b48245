package interop;

import com.google.gson.Gson;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Consumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyContext;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/** Push consumers, each the only one of its group, as an application has them. */
final class Groups {
    /** A group must be this long without a message before it has all. */
    private static final long QUIET_MS = 1_500;
    private static final long PATIENCE_MS = 120_000;

    /** The argument of the command, a list of these. */
    static final class Group {
        String name;
        List<String> topics;
        /** The bodies of the messages that it waits for; others that come are told, too. */
        List<String> awaited;
        /** By body, how often the group fails on the message. */
        Map<String, Integer> failures = Map.of();
        /** The delay level of a retry; 0 leaves it to the broker, and -1 makes a dead letter. */
        int level;
    }

    private final String nameServer;
    private final Consumer<Object> out;

    Groups(String nameServer, Consumer<Object> out) {
        // Else a topic that is made by a heartbeat, as that of the retries is, is not consumed for the first 20 s.
        System.setProperty("rocketmq.client.rebalance.waitInterval", "500");
        this.nameServer = nameServer;
        this.out = out;
    }

    /** Tells every message that a listener gets, in the order of its calls. */
    void consume(String json) throws Exception {
        List<Member> members = new ArrayList<>();
        for (Group group : new Gson().fromJson(json, Group[].class)) {
            Member member = new Member(group);
            members.add(member);
            member.consumer.start();
        }
        long until = System.currentTimeMillis() + PATIENCE_MS;
        while (System.currentTimeMillis() < until && !members.stream().allMatch(Member::isDone)) {
            Thread.sleep(20);
        }
        for (Member member : members) {
            member.consumer.shutdown(); // tells the broker its progress
        }
    }

    /** The consumer of a group. */
    private final class Member implements MessageListenerConcurrently {
        final DefaultMQPushConsumer consumer;
        private final Group group;
        private final Map<String, Integer> failures;
        private final AtomicLong last = new AtomicLong(System.currentTimeMillis());
        private final List<String> missing;

        Member(Group group) throws Exception {
            this.group = group;
            failures = new HashMap<>(group.failures);
            missing = new ArrayList<>(group.awaited);
            consumer = new DefaultMQPushConsumer(group.name);
            consumer.setNamesrvAddr(nameServer);
            consumer.setPollNameServerInterval(500);
            consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
            consumer.setAwaitTerminationMillisWhenShutdown(5_000);
            for (String topic : group.topics) {
                consumer.subscribe(topic, "*");
            }
            consumer.registerMessageListener(this);
        }

        synchronized boolean isDone() {
            return missing.isEmpty() && System.currentTimeMillis() - last.get() >= QUIET_MS;
        }

        @Override
        public synchronized ConsumeConcurrentlyStatus consumeMessage(List<MessageExt> messages, ConsumeConcurrentlyContext context) {
            MessageExt message = messages.get(0); // by default a listener gets one at a time
            String body = new String(message.getBody(), StandardCharsets.UTF_8);
            int failure = failures.getOrDefault(body, 0);
            out.accept(Clients.line(
                "group", group.name,
                "topic", message.getTopic(),
                "queue_id", message.getQueueId(),
                "queue_offset", message.getQueueOffset(),
                "body", body,
                "reconsume_times", message.getReconsumeTimes(),
                "is_retry", message.getProperty("RETRY_TOPIC") != null));
            missing.remove(body);
            last.set(System.currentTimeMillis());
            if (failure == 0) {
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            }
            failures.put(body, failure - 1);
            context.setDelayLevelWhenNextConsume(group.level);
            return ConsumeConcurrentlyStatus.RECONSUME_LATER;
        }
    }
}
