package io.github.delaybridge;

import java.time.Duration;
import java.util.concurrent.ThreadLocalRandom;

/** The time and the chance of a client, which tests replace. */
public interface ClientClock {
    /** The machine's. */
    ClientClock SYSTEM = new ClientClock() {};

    /** Nanoseconds since any moment. */
    default long nanos() {
        return System.nanoTime();
    }

    /** Waits. */
    default void sleep(Duration d) throws InterruptedException {
        Thread.sleep(d.toMillis(), d.toNanosPart() % 1_000_000);
    }

    /** From 0 up to 1 (exclusive). */
    default double random() {
        return ThreadLocalRandom.current().nextDouble();
    }
}
