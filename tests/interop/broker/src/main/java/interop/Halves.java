package interop;

import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.channel.embedded.EmbeddedChannel;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.function.Consumer;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.broker.transaction.AbstractTransactionalMessageCheckListener;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.store.PutMessageResult;

/** A broker's own service of transactions, without a network. */
final class Halves {
    private final BrokerController broker;
    private final Consumer<Object> out;
    private final ChannelHandlerContext channel;

    Halves(BrokerController broker, Consumer<Object> out) {
        this.broker = broker;
        this.out = out;
        channel = new EmbeddedChannel(new ChannelInboundHandlerAdapter()).pipeline().firstContext();
    }

    /** {@code half GROUP TOPIC QUEUE UNIQUE_KEY BODY} stores a half message, and says where. */
    void send(String[] words) {
        MessageExt message = new MessageExt();
        message.setTopic(words[2]);
        message.setQueueId(Integer.parseInt(words[3]));
        message.setBody(words[5].getBytes(StandardCharsets.UTF_8));
        message.setBornTimestamp(System.currentTimeMillis());
        message.setBornHost(new InetSocketAddress("10.0.0.1", 5000));
        message.setStoreHost(new InetSocketAddress("10.0.0.2", 10911));
        MessageAccessor.putProperty(message, "UNIQ_KEY", words[4]);
        MessageAccessor.putProperty(message, "TRAN_MSG", "true");
        MessageAccessor.putProperty(message, "PGROUP", words[1]);
        PutMessageResult result = Generation.prepare(broker, message);
        if (!result.isOk()) {
            throw new IllegalStateException(result.toString());
        }
        out.accept(Clients.line(
            "queue_offset", result.getAppendMessageResult().getLogicsOffset(),
            "physical_offset", result.getAppendMessageResult().getWroteOffset()));
    }

    /** {@code end GROUP QUEUE_OFFSET PHYSICAL_OFFSET TYPE}, of the half message. The type is that of the record flag. */
    void end(String[] words) throws Exception {
        Generation.end(broker, channel, words[1], Long.parseLong(words[2]), Long.parseLong(words[3]), Integer.parseInt(words[4]));
    }

    /** {@code check TIMEOUT_MS MAX} checks once, and tells which half messages it asks about and which it gives up. */
    void check(String[] words) {
        AbstractTransactionalMessageCheckListener listener = new AbstractTransactionalMessageCheckListener() {
            @Override
            public void resolveHalfMsg(MessageExt half) {
                tell(half, false);
            }

            @Override
            public void resolveDiscardMsg(MessageExt half) {
                tell(half, true);
            }
        };
        broker.getTransactionalMessageService().check(Long.parseLong(words[1]), Integer.parseInt(words[2]), listener);
    }

    private void tell(MessageExt half, boolean isGivenUp) {
        out.accept(Clients.line(
            "unique_key", half.getProperty("UNIQ_KEY"),
            "queue_offset", half.getQueueOffset(),
            "physical_offset", half.getCommitLogOffset(),
            "checks", Integer.parseInt(half.getProperty("TRANSACTION_CHECK_TIMES")),
            "is_given_up", isGivenUp));
    }
}
