package shop;

import com.sun.management.OperatingSystemMXBean;
import io.github.delaybridge.Batcher;
import io.github.delaybridge.Client;
import io.github.delaybridge.Message;
import java.lang.management.ManagementFactory;
import java.time.Duration;
import java.util.Collections;
import java.util.concurrent.atomic.AtomicLong;

/**
 * Measures how fast one JVM schedules at a bridge: {@code Pace http://127.0.0.1:8080}. With a token it needs a rate beyond
 * the default of 500 calls a second.
 */
final class Pace {
    private static final Message MESSAGE =
            Message.builder("pace").after(Duration.ofHours(1)).body("x".repeat(100)).build();

    private Pace() {}

    /** Schedules once, and returns how many messages that were. */
    private interface Step {
        int run() throws InterruptedException;
    }

    private static void rate(String name, int threads, Step step) throws InterruptedException {
        during(Duration.ofSeconds(5), threads, step); // Connections are made, and the code is compiled.
        long cpu = cpu();
        long begin = System.nanoTime();
        long count = during(Duration.ofSeconds(5), threads, step);
        double seconds = (System.nanoTime() - begin) / 1e9;
        System.out.printf("%-32s %8.0f messages/s, %6.0f µs CPU each in this process%n", name, count / seconds, (cpu() - cpu) / 1e3 / count);
    }

    private static long during(Duration time, int threads, Step step) throws InterruptedException {
        AtomicLong count = new AtomicLong();
        long end = System.nanoTime() + time.toNanos();
        Thread[] all = new Thread[threads];
        for (int i = 0; i < threads; i++) {
            all[i] = new Thread(() -> {
                try {
                    while (System.nanoTime() < end) {
                        count.addAndGet(step.run());
                    }
                } catch (InterruptedException e) {
                    throw new IllegalStateException(e);
                }
            });
            all[i].start();
        }
        for (Thread t : all) {
            t.join();
        }
        return count.get();
    }

    private static long cpu() {
        return ((OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
    }

    public static void main(String[] args) throws InterruptedException {
        Client.Builder b = Client.builder().servers(args[0]).queue("orders");
        Client client = (args.length > 1 ? b.token(args[1]) : b).build();
        Step one = () -> {
            client.schedule(MESSAGE);
            return 1;
        };
        rate("Client.schedule, 64 threads", 64, one);
        rate("Client.schedule, 1 thread", 1, one);
        rate("Client.scheduleBatch of 500", 1, () -> client.scheduleBatch(Collections.nCopies(500, MESSAGE)).size());
        try (Batcher batcher = Batcher.of(client)) {
            rate("Batcher.add, 1 thread", 1, () -> {
                batcher.add(MESSAGE);
                return 1;
            });
        }
    }
}
