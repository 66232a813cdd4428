import io.github.delaybridge.Batcher;
import io.github.delaybridge.Client;
import io.github.delaybridge.Message;
import java.time.Duration;
import java.util.Collections;
import java.util.Scanner;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;

/**
 * Schedules as fast as one JVM can, for {@code figures load}: {@code Load BRIDGE}, with a token in TOKEN. Each line of the
 * input is a way and for how many seconds: {@code one 5}, {@code many 5} (64 callers), {@code batcher 5}. The answer is how
 * many messages were scheduled.
 */
public final class Load {
    private static final int CALLERS = 64;
    private static final Message MESSAGE =
            Message.builder("load").after(Duration.ofDays(1)).body("x".repeat(256)).build();

    private final Client client;

    private Load(Client client) {
        this.client = client;
    }

    private long one(long end) {
        long count = 0;
        for (; System.nanoTime() < end; count++) {
            client.schedule(MESSAGE);
        }
        return count;
    }

    private long many(long end) throws Exception {
        ExecutorService callers = Executors.newFixedThreadPool(CALLERS);
        try {
            Callable<Long> one = () -> one(end);
            long count = 0;
            for (Future<Long> counted : callers.invokeAll(Collections.nCopies(CALLERS, one))) {
                count += counted.get();
            }
            return count;
        } finally {
            callers.shutdown();
        }
    }

    private long batcher(long end) throws Exception {
        AtomicLong done = new AtomicLong();
        AtomicReference<Throwable> failure = new AtomicReference<>();
        try (Batcher batcher = Batcher.of(client)) {
            while (System.nanoTime() < end && failure.get() == null) {
                batcher.add(MESSAGE).whenComplete((result, error) -> {
                    if (error == null) {
                        done.incrementAndGet();
                    } else {
                        failure.set(error);
                    }
                });
            }
        }
        if (failure.get() != null) {
            throw new IllegalStateException(failure.get());
        }
        return done.get();
    }

    public static void main(String[] args) throws Exception {
        Load load = new Load(Client.builder().servers(args[0]).queue("orders").token(System.getenv("TOKEN")).build());
        Scanner orders = new Scanner(System.in);
        while (orders.hasNext()) {
            String way = orders.next();
            long end = System.nanoTime() + (long) (orders.nextDouble() * 1e9);
            System.out.println(
                    switch (way) {
                        case "one" -> load.one(end);
                        case "many" -> load.many(end);
                        case "batcher" -> load.batcher(end);
                        default -> throw new IllegalArgumentException(way);
                    });
        }
    }
}
