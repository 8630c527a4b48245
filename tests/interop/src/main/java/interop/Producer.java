package interop;

import java.util.ArrayList;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageClientIDSetter;
import org.apache.rocketmq.common.message.MessageDecoder;

/** What RocketMQ's client does before it sends: bodies of batches, unique keys. */
final class Producer {
    /** A message of a batch. */
    private static final class Unit {
        int flag;
        /** In base64. */
        String body;
        LinkedHashMap<String, String> properties = new LinkedHashMap<>();
    }

    private Producer() {
    }

    /** The body of a batch, in base64, of a list of messages. */
    static String encode(String line) {
        List<Message> messages = new ArrayList<>();
        for (Unit unit : Harness.GSON.fromJson(line, Unit[].class)) {
            Message message = new Message();
            message.setFlag(unit.flag);
            message.setBody(Base64.getDecoder().decode(unit.body));
            MessageAccessor.setProperties(message, new LinkedHashMap<>(unit.properties));
            messages.add(message);
        }
        return Base64.getEncoder().encodeToString(MessageDecoder.encodeMessages(messages));
    }

    /** What a unique key says of itself. */
    static Map<String, Object> describe(String uniqueKey) {
        return Harness.line(
            "unique_key", uniqueKey,
            "ip", MessageClientIDSetter.getIPStrFromID(uniqueKey),
            "process", MessageClientIDSetter.getPidFromID(uniqueKey),
            "time", MessageClientIDSetter.getNearlyTimeFromID(uniqueKey).getTime());
    }

    /** A unique key of RocketMQ's, and what it says of itself. */
    static Map<String, Object> newUniqueKey() {
        return describe(MessageClientIDSetter.createUniqID());
    }
}
