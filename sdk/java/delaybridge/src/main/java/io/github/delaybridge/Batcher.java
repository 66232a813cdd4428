package io.github.delaybridge;

import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.BooleanSupplier;

/**
 * Schedules messages in batches, by one thread in the background. It is safe for threads.
 *
 * <p>A request leaves when {@code maxMessages} or {@code maxBytes} are there, or {@code linger} after its first message.
 * Up to {@code maxPending} messages, and {@code maxPendingBytes}, wait or are in a request; then {@link #add} waits for
 * room. Nothing is ever dropped: the future of each message tells its result or error. {@link #close} sends what waits;
 * so does the end of the JVM, as far as it is an orderly one.
 *
 * <p>What is attached to a future without an executor runs in the Batcher's thread: it must not block, or call the
 * Batcher.
 */
public final class Batcher implements AutoCloseable {
    private final Client client;
    private final Limits limits;
    private final Thread thread;
    private final Thread hook = new Thread(this::finish, "delaybridge-batcher-end");
    private final ReentrantLock lock = new ReentrantLock();
    private final Condition changed = lock.newCondition();
    // What follows is under the lock.
    private final Deque<Entry> waiting = new ArrayDeque<>();
    private long waitingBytes;
    private long pendingBytes; // waiting, or in a request
    private int pending;
    private int flushing;
    private boolean isClosed;

    private record Limits(int maxMessages, long maxBytes, Duration linger, int maxPending, long maxPendingBytes) {}

    private record Entry(byte[] encoded, CompletableFuture<ScheduleResult> outcome) {
        /** With the comma before it. */
        int size() {
            return encoded.length + 1;
        }
    }

    private Batcher(Client client, Limits limits) {
        this.client = client;
        this.limits = limits;
        thread = new Thread(this::run, "delaybridge-batcher-" + client.queue());
        thread.setDaemon(true); // The hook waits for it, so a program that forgets to close can end.
    }

    /** Begins a Batcher of the client's queue. */
    public static Builder builder(Client client) {
        return new Builder(client);
    }

    /** A Batcher with the defaults. */
    public static Batcher of(Client client) {
        return builder(client).build();
    }

    /** Adds a message, and returns its outcome to be. Waits for room as long as that takes. */
    public CompletableFuture<ScheduleResult> add(Message message) throws InterruptedException {
        try {
            return add(message, Duration.ofNanos(Long.MAX_VALUE));
        } catch (TimeoutException e) {
            throw new IllegalStateException(e); // That is in 292 years.
        }
    }

    /**
     * Adds a message, and returns its outcome to be. A future that is cancelled before its request leaves takes the
     * message with it.
     *
     * @throws TimeoutException there was no room in that time
     * @throws IllegalStateException the Batcher is closed
     */
    public CompletableFuture<ScheduleResult> add(Message message, Duration timeout)
            throws InterruptedException, TimeoutException {
        Entry entry = new Entry(Wire.encode(message), new CompletableFuture<>());
        lock.lockInterruptibly();
        try {
            if (!await(() -> isClosed || hasRoom(entry), timeout)) {
                throw new TimeoutException(pending + " messages wait: no room within " + timeout);
            }
            if (isClosed) {
                throw new IllegalStateException("the Batcher is closed");
            }
            waiting.add(entry);
            waitingBytes += entry.size();
            pending++;
            pendingBytes += entry.size();
            if (waiting.size() == 1 || isEnough()) {
                changed.signalAll();
            }
            return entry.outcome;
        } finally {
            lock.unlock();
        }
    }

    /** A message that has no room alone has it when nothing else waits. */
    private boolean hasRoom(Entry e) {
        return pending == 0 || pending < limits.maxPending && pendingBytes + e.size() <= limits.maxPendingBytes;
    }

    /** Sends what was added, without waiting for more, and waits until all of it has an outcome. */
    public void flush() throws InterruptedException {
        lock.lockInterruptibly();
        try {
            flushing++;
            changed.signalAll();
            while (pending > 0) {
                changed.await();
            }
        } finally {
            flushing--;
            lock.unlock();
        }
    }

    /**
     * Sends what was added, and waits until all of it has an outcome: for each request, as long as a call of the client
     * may take. An interrupt does not end that; it is kept. {@link #add} fails from now on.
     */
    @Override
    public void close() {
        finish();
        try {
            Runtime.getRuntime().removeShutdownHook(hook);
        } catch (IllegalStateException e) {
            // The JVM is ending.
        }
    }

    private void finish() {
        lock.lock();
        try {
            isClosed = true;
            changed.signalAll();
        } finally {
            lock.unlock();
        }
        boolean wasInterrupted = false;
        while (thread.isAlive()) {
            try {
                thread.join();
            } catch (InterruptedException e) {
                wasInterrupted = true;
            }
        }
        if (wasInterrupted) {
            Thread.currentThread().interrupt();
        }
    }

    private void run() {
        for (List<Entry> batch = next(); !batch.isEmpty(); batch = next()) {
            List<Entry> sent = batch.stream().filter(e -> !e.outcome.isDone()).toList();
            if (!sent.isEmpty()) {
                send(sent);
            }
            lock.lock();
            try {
                pending -= batch.size();
                pendingBytes -= batch.stream().mapToLong(Entry::size).sum();
                changed.signalAll();
            } finally {
                lock.unlock();
            }
        }
    }

    private void send(List<Entry> batch) {
        try {
            List<byte[]> messages = batch.stream().map(Entry::encoded).toList();
            List<BatchItem> items = client.scheduleEncoded(messages, CallOptions.NONE);
            for (int i = 0; i < batch.size(); i++) {
                settle(batch.get(i).outcome, items.get(i));
            }
        } catch (RuntimeException | Error e) { // Whatever it is, callers wait for it.
            batch.forEach(entry -> entry.outcome.completeExceptionally(e));
        }
    }

    private static void settle(CompletableFuture<ScheduleResult> outcome, BatchItem item) {
        if (item.error() == null) {
            outcome.complete(item.result());
        } else {
            outcome.completeExceptionally(item.error());
        }
    }

    /** Waits for the next request. An empty one is the end. */
    private List<Entry> next() {
        lock.lock();
        try {
            while (waiting.isEmpty() && !isClosed) {
                changed.awaitUninterruptibly();
            }
            await(() -> isEnough() || isClosed || flushing > 0, limits.linger);
            return cut();
        } catch (InterruptedException e) { // Nobody has the thread but this class.
            throw new IllegalStateException(e);
        } finally {
            lock.unlock();
        }
    }

    /** Whether a request would be full. */
    private boolean isEnough() {
        return waiting.size() >= limits.maxMessages || waitingBytes >= limits.maxBytes;
    }

    /** Takes the messages of the next request. */
    private List<Entry> cut() {
        List<Entry> batch = new ArrayList<>();
        long size = Wire.OPENING.length + Wire.CLOSING.length - 1; // There is one comma less than messages.
        while (!waiting.isEmpty() && batch.size() < limits.maxMessages) {
            int more = waiting.peek().size();
            if (!batch.isEmpty() && size + more > limits.maxBytes) {
                break;
            }
            size += more;
            waitingBytes -= more;
            batch.add(waiting.remove());
        }
        return batch;
    }

    /** Waits for a condition; false if the time was over before. */
    private boolean await(BooleanSupplier isMet, Duration timeout) throws InterruptedException {
        long left = timeout.toNanos();
        while (!isMet.getAsBoolean()) {
            if (left <= 0) {
                return false;
            }
            left = changed.awaitNanos(left);
        }
        return true;
    }

    /** The options of a Batcher. */
    public static final class Builder {
        private final Client client;
        private int maxMessages = 500;
        private long maxBytes = 1 << 20;
        private Duration linger = Duration.ofMillis(5);
        private int maxPending = 10_000;
        private long maxPendingBytes = 64 << 20;

        private Builder(Client client) {
            this.client = client;
        }

        /** The most messages of a request, up to 1,000: 500 unless it is given. */
        public Builder maxMessages(int count) {
            maxMessages = count;
            return this;
        }

        /** The most bytes of a request: 1 MiB unless it is given. A larger message goes alone. */
        public Builder maxBytes(long bytes) {
            maxBytes = bytes;
            return this;
        }

        /** For how long a message waits for others: 5 ms unless it is given. */
        public Builder linger(Duration linger) {
            this.linger = linger;
            return this;
        }

        /** How many messages have room, with those in a request: 10,000 unless it is given. */
        public Builder maxPending(int count) {
            maxPending = count;
            return this;
        }

        /** How many bytes have room, with those in a request: 64 MiB unless it is given. */
        public Builder maxPendingBytes(long bytes) {
            maxPendingBytes = bytes;
            return this;
        }

        /** Makes the Batcher, and starts its thread. Throws InvalidException if a limit is wrong. */
        public Batcher build() {
            check("maxMessages", maxMessages, Wire.MOST_BATCH);
            check("maxBytes", maxBytes, Integer.MAX_VALUE);
            check("maxPending", maxPending, Integer.MAX_VALUE);
            check("maxPendingBytes", maxPendingBytes, Long.MAX_VALUE);
            Batcher b = new Batcher(client, new Limits(maxMessages, maxBytes, linger, maxPending, maxPendingBytes));
            Runtime.getRuntime().addShutdownHook(b.hook);
            b.thread.start();
            return b;
        }

        private static void check(String field, long value, long most) {
            if (value < 1 || value > most) {
                throw new InvalidException(field, value + ": must be 1 to " + most);
            }
        }
    }
}
