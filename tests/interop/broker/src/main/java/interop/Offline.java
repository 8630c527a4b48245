package interop;

import com.google.gson.Gson;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import org.apache.rocketmq.broker.BrokerController;

/**
 * A broker's classes on a store, without a network. The argument is the broker's configuration file. It delivers delayed messages.
 *
 * <p>Commands are lines as those of {@link Broker}: {@code back GROUP TOPIC PHYSICAL_OFFSET LEVEL} sends a message back, as a consumer does;
 * {@code half}, {@code end} and {@code check} are those of {@link Halves}; {@code persist} writes the progress.
 */
public final class Offline {
    private Offline() {
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);
        System.setOut(new PrintStream(OutputStream.nullOutputStream()));
        int exit = 0;
        try {
            run(arguments[0], out);
        } catch (Exception | Error failure) {
            failure.printStackTrace();
            exit = 1;
        }
        System.exit(exit);
    }

    private static void run(String configuration, PrintStream out) throws Exception {
        BrokerController broker = Broker.newBroker(configuration, null);
        if (!broker.initialize()) {
            throw new IllegalStateException("the broker does not load its store");
        }
        broker.getMessageStore().start();
        Generation.startDelivery(broker);
        out.println(new Gson().toJson(Map.of("done", "start")));
        Halves halves = new Halves(broker, line -> out.println(new Gson().toJson(line)));
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            switch (words[0]) {
                case "back":
                    Generation.sendBack(broker, words[1], words[2], Long.parseLong(words[3]), Integer.parseInt(words[4]));
                    break;
                case "half":
                    halves.send(words);
                    break;
                case "end":
                    halves.end(words);
                    break;
                case "check":
                    halves.check(words);
                    break;
                case "persist":
                    broker.getConsumerOffsetManager().persist();
                    break;
                default:
                    throw new IllegalArgumentException("unknown command " + words[0]);
            }
            out.println(new Gson().toJson(Map.of("done", line)));
        }
        Generation.stopDelivery(broker);
        broker.getMessageStore().shutdown();
    }
}
