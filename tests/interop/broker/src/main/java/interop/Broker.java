package interop;

import com.google.gson.Gson;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Map;
import java.util.Properties;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MQVersion;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.namesrv.NamesrvConfig;
import org.apache.rocketmq.namesrv.NamesrvController;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/**
 * A name server, a broker and their clients in one process, on free ports of 127.0.0.1. The argument is the broker's configuration file.
 *
 * <p>Each line of the standard input is a command. Lines of JSON answer it, and {@code {"done": COMMAND}} comes last; {@code {"done": "start"}}
 * says that the broker serves. Commands: {@code create TOPIC QUEUES [ATTRIBUTE=VALUE...]}, {@code delete TOPIC}, {@code send FIRST TOPIC QUEUES...} (messages of
 * consecutive numbers, until {@code rest}; the acknowledged ones are told at once), {@code put JSON} (one message, see {@link Clients.Put}),
 * {@code progress GROUP TOPIC QUEUE OFFSET} (of a consumer group), {@code consume TOPIC TAGS} (every message of every queue),
 * {@code groups JSON} (what push consumers get, see {@link Groups}), {@code expire} (remove the oldest files now), {@code address} (where it listens)
 * and {@code synchronize ADDRESS} (take the settings of a master, as a slave does). The end of the input closes the broker.
 */
public final class Broker {
    private static final Gson GSON = new Gson();

    private final PrintStream out;
    private final NamesrvController nameServer;
    private final String nameServerAddress;
    private final BrokerController broker;
    private final Clients clients;

    private Broker(String configuration, PrintStream out) throws Exception {
        this.out = out;
        NettyServerConfig server = Generation.onFreePort();
        nameServer = new NamesrvController(new NamesrvConfig(), server);
        if (!nameServer.initialize()) {
            throw new IllegalStateException("the name server does not start");
        }
        nameServer.start();
        nameServerAddress = "127.0.0.1:" + server.getListenPort();
        broker = newBroker(configuration, nameServerAddress);
        if (!broker.initialize()) {
            throw new IllegalStateException("the broker does not load its store");
        }
        broker.start();
        clients = new Clients(nameServerAddress, broker.getBrokerAddr(), this::print);
    }

    public static void main(String[] arguments) throws Exception {
        // Only answers go to the standard output, whatever the classes print.
        PrintStream out = new PrintStream(new FileOutputStream(FileDescriptor.out), false, StandardCharsets.UTF_8);
        System.setOut(new PrintStream(OutputStream.nullOutputStream()));
        // As BrokerStartup does. A name server of RocketMQ 4 takes no topics of a broker that states no version.
        System.setProperty(RemotingCommand.REMOTING_VERSION_KEY, Integer.toString(MQVersion.CURRENT_VERSION));
        int exit = 0;
        try {
            new Broker(arguments[0], out).obeyAll();
        } catch (Exception | Error failure) {
            failure.printStackTrace();
            exit = 1;
        }
        System.exit(exit); // some services leave threads running
    }

    static BrokerController newBroker(String configuration, String nameServer) throws Exception {
        Properties properties = new Properties();
        try (InputStream file = new FileInputStream(configuration)) {
            properties.load(file);
        }
        BrokerConfig config = new BrokerConfig();
        config.setBrokerName(Clients.BROKER_NAME);
        config.setBrokerIP1("127.0.0.1");
        config.setNamesrvAddr(nameServer);
        config.setAutoCreateTopicEnable(false);
        MessageStoreConfig store = new MessageStoreConfig();
        store.setHaListenPort(0);
        MixAll.properties2Object(properties, config);
        MixAll.properties2Object(properties, store);
        return new BrokerController(config, Generation.onFreePort(), new NettyClientConfig(), store);
    }

    private void obeyAll() throws Exception {
        print(Map.of("done", "start"));
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            obey(line.split(" "));
            print(Map.of("done", line));
        }
        clients.close();
        broker.shutdown();
        nameServer.shutdown();
    }

    private void obey(String[] words) throws Exception {
        switch (words[0]) {
            case "create":
                clients.create(words[1], Integer.parseInt(words[2]), Arrays.copyOfRange(words, 3, words.length));
                // The clients ask the name server where the topic is. The broker tells it a moment later, or at once here.
                broker.registerBrokerAll(true, false, true);
                break;
            case "delete":
                clients.delete(words[1]);
                break;
            case "send":
                clients.send(words);
                break;
            case "rest":
                clients.rest();
                break;
            case "put":
                clients.put(String.join(" ", Arrays.copyOfRange(words, 1, words.length)));
                break;
            case "recall":
                clients.recall(words[1], words[2]);
                break;
            case "progress":
                clients.progress(words[1], words[2], Integer.parseInt(words[3]), Long.parseLong(words[4]));
                break;
            case "consume":
                clients.consume(words[1], words[2]);
                break;
            case "groups":
                new Groups(nameServerAddress, this::print).consume(String.join(" ", Arrays.copyOfRange(words, 1, words.length)));
                break;
            case "expire":
                expire();
                break;
            case "address":
                print(Map.of("address", broker.getBrokerAddr()));
                break;
            case "synchronize":
                broker.getSlaveSynchronize().setMasterAddr(words[1]);
                broker.getSlaveSynchronize().syncAll();
                break;
            default:
                throw new IllegalArgumentException("unknown command " + words[0]);
        }
    }

    /** What the broker does every ten seconds, beginning a minute after its start. */
    private void expire() throws ReflectiveOperationException {
        DefaultMessageStore store = (DefaultMessageStore) broker.getMessageStore();
        store.executeDeleteFilesManually();
        for (String name : Generation.CLEANING) {
            Method clean = DefaultMessageStore.class.getDeclaredMethod(name);
            clean.setAccessible(true);
            clean.invoke(store);
        }
    }

    private synchronized void print(Object line) {
        out.println(GSON.toJson(line));
        out.flush();
    }
}
