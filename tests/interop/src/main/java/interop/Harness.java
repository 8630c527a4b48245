package interop;

import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import java.io.BufferedWriter;
import java.io.File;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.io.OutputStreamWriter;
import java.io.PrintStream;
import java.io.Writer;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.locks.LockSupport;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.config.BrokerRole;
import org.apache.rocketmq.store.config.FlushDiskType;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/**
 * Opens one store directory with RocketMQ's own classes, does what the arguments say, closes it, and prints JSON Lines.
 *
 * <p>Arguments: {@code DIR option=value... command[=argument]...}. Options set the size of what is in the store: {@code segment}
 * (bytes of a commit-log file), {@code queue} (bytes of a consume-queue file), {@code slots} and {@code items} (of an index file),
 * {@code levels} (the delay levels), {@code flush} (the type of the flush), {@code batch} (most messages of a query), {@code recover_files} (how many segments recovery goes back at most, where there is a limit),
 * {@code verify_crc} (where there is that option: no record passes without a correct checksum of the whole of it),
 * {@code option.NAME} (any other of RocketMQ's options).
 * Commands: {@code write=PLAN}, {@code dump}, {@code survey}, {@code query=FILE}, {@code defaults}, {@code load_time},
 * {@code put=BYTES,PRODUCERS,MESSAGES,MILLISECONDS}, {@code rounds} (such questions, from the standard input), {@code encode=FILE} (bodies of producer batches), {@code unique_keys=FILE}, {@code new_unique_key},
 * {@code expire} (remove the files that are old), {@code slave=HOST:PORT} (take the log of that master), {@code until=BYTES} (wait until the log is that long), {@code hold} (keep the store open until the standard input ends) and {@code halt} (do not close it).
 *
 * <p>{@code each FILE} runs every line of a file instead: such arguments, as a JSON array.
 */
public final class Harness {
    static final Gson GSON = new GsonBuilder().disableHtmlEscaping().create();

    private final DefaultMessageStore store;
    private final MessageStoreConfig config;
    private final Writer out;
    /** In nanoseconds; recovery is part of it. */
    private final long loadTime;

    private Harness(DefaultMessageStore store, MessageStoreConfig config, Writer out, long loadTime) {
        this.store = store;
        this.config = config;
        this.out = out;
        this.loadTime = loadTime;
    }

    public static void main(String[] arguments) throws Exception {
        // Only answers go to the standard output, whatever the classes print.
        Writer out = new BufferedWriter(new OutputStreamWriter(new FileOutputStream(FileDescriptor.out), StandardCharsets.UTF_8));
        System.setOut(new PrintStream(OutputStream.nullOutputStream()));
        int exit = 0;
        try {
            if (arguments[0].equals("each")) {
                runEach(arguments[1], out);
            } else {
                run(arguments, out);
            }
        } catch (Exception | Error failure) {
            failure.printStackTrace();
            exit = 1;
        }
        out.flush();
        System.exit(exit); // some services of the store leave threads running
    }

    /** Runs each line of a file, the arguments of one run as a JSON array. A store that RocketMQ refuses or cannot close ends its run only. */
    private static void runEach(String file, Writer out) throws Exception {
        for (String line : lines(file)) {
            String[] arguments = GSON.fromJson(line, String[].class);
            GSON.toJson(line("store", arguments[0]), out);
            out.write('\n');
            try {
                run(arguments, out);
            } catch (Exception failure) {
                GSON.toJson(line("failed", failure.toString()), out);
                out.write('\n');
            }
        }
    }

    private static void run(String[] arguments, Writer out) throws Exception {
        MessageStoreConfig config = newConfig(arguments[0]);
        List<String[]> commands = new ArrayList<>();
        for (int i = 1; i < arguments.length; i++) {
            String[] parts = arguments[i].split("=", 2);
            if (!setOption(config, parts)) {
                commands.add(parts);
            }
        }
        BrokerConfig broker = new BrokerConfig();
        broker.setBrokerId(config.getBrokerRole() == BrokerRole.SLAVE ? 1 : 0);
        DefaultMessageStore store = Generation.newStore(config, broker, (topic, queue, offset, tags, time, bitmap, properties) -> { });
        long start = System.nanoTime();
        if (!store.load()) {
            throw new IOException("RocketMQ does not load " + arguments[0]);
        }
        long loadTime = System.nanoTime() - start;
        store.start();
        Harness harness = new Harness(store, config, out, loadTime);
        for (String[] command : commands) {
            harness.obey(command[0], command.length > 1 ? command[1] : null);
        }
        harness.shutdown();
        if (new File(arguments[0], "abort").exists()) {
            throw new IOException("RocketMQ did not close " + arguments[0] + " cleanly: its abort file is left");
        }
    }

    private static MessageStoreConfig newConfig(String dir) {
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(dir);
        config.setStorePathCommitLog(dir + File.separator + "commitlog");
        config.setHaListenPort(0); // any free port: nobody connects
        config.setMaxMsgsNumBatch(1_000_000); // a query gives all it finds
        return config;
    }

    private static boolean setOption(MessageStoreConfig config, String[] option) throws ReflectiveOperationException {
        switch (option[0]) {
            case "segment":
                config.setMappedFileSizeCommitLog(Integer.parseInt(option[1]));
                return true;
            case "queue":
                config.setMappedFileSizeConsumeQueue(Integer.parseInt(option[1]));
                return true;
            case "slots":
                config.setMaxHashSlotNum(Integer.parseInt(option[1]));
                return true;
            case "items":
                config.setMaxIndexNum(Integer.parseInt(option[1]));
                return true;
            case "levels":
                config.setMessageDelayLevel(option[1]);
                return true;
            case "batch":
                config.setMaxMsgsNumBatch(Integer.parseInt(option[1]));
                return true;
            case "flush":
                config.setFlushDiskType(option[1]);
                return true;
            case "recover_files":
                Generation.setRecoverFiles(config, Integer.parseInt(option[1]));
                return true;
            case "verify_crc":
                Generation.setVerifyCrc(config, Boolean.parseBoolean(option[1]));
                return true;
            default:
                return setOther(config, option);
        }
    }

    private static boolean setOther(MessageStoreConfig config, String[] option) {
        String prefix = "option.";
        if (!option[0].startsWith(prefix)) {
            return false;
        }
        Properties properties = new Properties();
        properties.setProperty(option[0].substring(prefix.length()), option[1]);
        MixAll.properties2Object(properties, config);
        return true;
    }

    private void obey(String command, String argument) throws Exception {
        print(Map.of("command", command));
        switch (command) {
            case "write":
                Plan plan = new Plan(store, config);
                for (String line : lines(argument)) {
                    Object stored = plan.carryOut(line);
                    if (stored != null) {
                        print(stored);
                        out.flush(); // whoever kills this process knows by it what was stored
                    }
                }
                awaitDispatch();
                break;
            case "dump":
                new Dump(store, this::print).run();
                break;
            case "survey":
                new Survey(store, this::print).run();
                break;
            case "query":
                Queries queries = new Queries(store, config);
                for (String line : lines(argument)) {
                    print(queries.answer(line));
                }
                break;
            case "encode":
                for (String line : lines(argument)) {
                    print(Producer.encode(line));
                }
                break;
            case "unique_keys":
                for (String line : lines(argument)) {
                    print(Producer.describe(line));
                }
                break;
            case "new_unique_key":
                print(Producer.newUniqueKey());
                break;
            case "defaults":
                print(defaults());
                break;
            case "load_time":
                print(Harness.line("ns", loadTime));
                break;
            case "expire":
                expire();
                break;
            case "slave":
                store.updateHaMasterAddress(argument);
                break;
            case "until":
                while (store.getMaxPhyOffset() < Long.parseLong(argument)) {
                    Thread.sleep(1);
                }
                break;
            case "halt":
                out.flush();
                Runtime.getRuntime().halt(0);
                break;
            case "put":
                print(new Bench(store).put(argument));
                break;
            case "rounds":
                new Bench(store).answer(this::printAtOnce, config.getFlushDiskType() == FlushDiskType.SYNC_FLUSH);
                break;
            case "hold":
                out.flush();
                while (System.in.read() >= 0) {
                    continue;
                }
                break;
            default:
                throw new IllegalArgumentException("unknown command " + command);
        }
    }

    /** Every option of the store, as a broker has it that was told nothing. */
    private static Map<String, String> defaults() throws IllegalAccessException {
        Map<String, String> values = new TreeMap<>();
        MessageStoreConfig untouched = new MessageStoreConfig();
        for (Field field : MessageStoreConfig.class.getDeclaredFields()) {
            field.setAccessible(true);
            values.put(field.getName(), String.valueOf(field.get(untouched)));
        }
        return values;
    }

    /** What a broker does every ten seconds, beginning a minute after its start. */
    private void expire() throws ReflectiveOperationException {
        store.executeDeleteFilesManually();
        for (Method clean : DefaultMessageStore.class.getDeclaredMethods()) {
            // The second one has been one of its own since RocketMQ 5.
            if (clean.getName().equals("cleanFilesPeriodically") || clean.getName().equals("cleanQueueFilesPeriodically")) {
                clean.setAccessible(true);
                clean.invoke(store);
            }
        }
    }

    private static List<String> lines(String file) throws IOException {
        return Files.readAllLines(Path.of(file));
    }

    private void print(Object line) throws IOException {
        GSON.toJson(line, out);
        out.write('\n');
    }

    private void printAtOnce(Object line) throws IOException {
        print(line);
        out.flush();
    }

    private void awaitDispatch() throws InterruptedException {
        while (store.dispatchBehindBytes() > 0) {
            Thread.sleep(1);
        }
    }

    /** Without the pause of some seconds that RocketMQ makes here for what is not dispatched yet. */
    private void shutdown() throws InterruptedException {
        awaitDispatch();
        Thread closing = Thread.currentThread();
        Thread waker = new Thread(() -> {
            StackTraceElement[] calls = closing.getStackTrace();
            while (!(calls.length > 1 && calls[0].getMethodName().equals("sleep") && calls[1].getMethodName().equals("shutdown"))) {
                calls = closing.getStackTrace();
                LockSupport.parkNanos(1_000_000);
            }
            closing.interrupt();
        });
        waker.setDaemon(true);
        waker.start();
        store.shutdown();
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
