package io.github.delaybridge;

import io.github.delaybridge.internal.Text;
import java.io.IOException;
import java.net.ConnectException;
import java.net.URI;
import java.nio.file.Path;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Supplier;

/**
 * Schedules messages of one queue through the HTTP API of one or more bridges. It is safe for threads, keeps
 * connections open, and needs no close.
 *
 * <p>Every call blocks, and throws a {@link DelaybridgeException} of the class of its code. A failed request is sent
 * again with growing waits, under one Idempotency-Key where it schedules, so that it has one effect. If its thread is
 * interrupted, a call ends at once with UnavailableException, or UnknownException if it may have had an effect, and the
 * thread's interrupt status is set.
 */
public final class Client {
    /** This library's. */
    public static final String VERSION = "0.1.0";

    private final String queue;
    private final Call.Servers servers;
    private final Supplier<String> token;
    private final Duration timeout;
    private final Duration attemptTimeout;
    private final Transport transport;
    private final ClientClock clock;

    private Client(Builder b, Call.Servers servers, Transport transport) {
        queue = b.queue;
        token = b.token;
        timeout = b.timeout;
        attemptTimeout = b.attemptTimeout;
        clock = b.clock;
        this.servers = servers;
        this.transport = transport;
    }

    private Client(Client other, String queue) {
        this.queue = queue;
        token = other.token;
        timeout = other.timeout;
        attemptTimeout = other.attemptTimeout;
        clock = other.clock;
        servers = other.servers;
        transport = other.transport;
    }

    /** Begins a client. It needs servers and a queue. */
    public static Builder builder() {
        return new Builder();
    }

    /** The queue of all calls. */
    public String queue() {
        return queue;
    }

    /** A client of another queue, with the same servers and connections. */
    public Client withQueue(String name) {
        return new Client(this, checkedQueue(name));
    }

    /** Schedules a message. Throws DuplicateException, TooLateException (with REPLACE), FullException, and others. */
    public ScheduleResult schedule(Message message) {
        return schedule(message, CallOptions.NONE);
    }

    /** Schedules a message. */
    public ScheduleResult schedule(Message message, CallOptions options) {
        return run(Wire.schedule(queue, message, options.idempotencyKey()), options);
    }

    /**
     * Schedules up to 1,000 messages in one request, of 24 MiB at most, and returns the outcome of each, by index. A
     * refused message does not fail the others.
     */
    public List<BatchItem> scheduleBatch(List<Message> messages) {
        return scheduleBatch(messages, CallOptions.NONE);
    }

    /** Schedules up to 1,000 messages. */
    public List<BatchItem> scheduleBatch(List<Message> messages, CallOptions options) {
        return scheduleEncoded(messages.stream().map(Wire::encode).toList(), options);
    }

    List<BatchItem> scheduleEncoded(List<byte[]> messages, CallOptions options) {
        return run(Wire.scheduleBatch(queue, messages, options.idempotencyKey()), options);
    }

    /** Cancels a message without a key. */
    public ChangeResult cancel(String id) {
        return cancel(Ref.of(id));
    }

    /**
     * Cancels a message, so that it is never published. Throws NotFoundException, TooLateException, UnknownException
     * and others. If an answer was lost and the message is not there any more, that is UnknownException: this call may
     * have cancelled it, or it was published before.
     */
    public ChangeResult cancel(Ref ref) {
        return cancel(ref, CallOptions.NONE);
    }

    /** Cancels a message. */
    public ChangeResult cancel(Ref ref, CallOptions options) {
        return run(Wire.cancel(queue, ref), options);
    }

    /** Moves a waiting message to another due time; a dead letter is put back. Its errors are those of cancel. */
    public ChangeResult reschedule(Ref ref, Due due) {
        return reschedule(ref, due, CallOptions.NONE);
    }

    /** Moves a waiting message to another due time. */
    public ChangeResult reschedule(Ref ref, Due due, CallOptions options) {
        return run(Wire.reschedule(queue, ref, due), options);
    }

    /** Makes a waiting message due now; a dead letter is put back. Its errors are those of cancel. */
    public ChangeResult publishNow(Ref ref) {
        return publishNow(ref, CallOptions.NONE);
    }

    /** Makes a waiting message due now. */
    public ChangeResult publishNow(Ref ref, CallOptions options) {
        return run(Wire.publishNow(queue, ref), options);
    }

    /** Shows a message without its body. Throws NotFoundException and others. */
    public StoredMessage get(Ref ref) {
        return get(ref, false, CallOptions.NONE);
    }

    /** Shows a message, perhaps with its body. */
    public StoredMessage get(Ref ref, boolean withBody, CallOptions options) {
        return run(Wire.get(queue, ref, withBody), options);
    }

    /** Cancels the messages that have the tag and the key, one of which may be empty. Repeat it until all counts are 0. */
    public CancelCount cancelAll(String tag, String key) {
        return cancelAll(tag, key, CallOptions.NONE);
    }

    /** Cancels the messages that have the tag and the key. */
    public CancelCount cancelAll(String tag, String key, CallOptions options) {
        return run(Wire.cancelAll(queue, tag, key), options);
    }

    private <T> T run(Prepared<T> request, CallOptions options) {
        Duration most = options.timeout() == null ? timeout : options.timeout();
        Call<T> call = new Call<>(request, servers, most, attemptTimeout, clock);
        boolean isSending = false;
        try {
            while (true) {
                isSending = true;
                Optional<Duration> wait = ask(call, request, options);
                isSending = false;
                if (wait.isEmpty()) {
                    return call.result();
                }
                if (!wait.get().isZero()) {
                    clock.sleep(wait.get());
                }
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            call.interrupted(isSending);
            return call.result();
        }
    }

    private Optional<Duration> ask(Call<?> call, Prepared<?> request, CallOptions options) throws InterruptedException {
        String sent = visible("token", token.get());
        Map<String, String> headers = headers(request, sent, options);
        try {
            URI uri = URI.create(call.url());
            Transport.Request r = new Transport.Request(request.method(), uri, headers, request.body());
            return call.answered(transport.send(r, call.timeLeft()), () -> !token.get().equals(sent));
        } catch (ConnectException e) {
            return call.lost("not connected: " + e.getMessage(), false);
        } catch (IOException e) {
            return call.lost("no answer: " + e.getMessage(), true);
        }
    }

    private static Map<String, String> headers(Prepared<?> request, String token, CallOptions options) {
        Map<String, String> headers = new LinkedHashMap<>();
        headers.put("User-Agent", "delaybridge-java/" + VERSION);
        if (request.key() != null) {
            headers.put("Idempotency-Key", request.key());
        }
        if (request.body() != null) {
            headers.put("Content-Type", "application/json");
        }
        if (!token.isEmpty()) {
            headers.put("Authorization", "Bearer " + token);
        }
        if (options.traceparent() != null) {
            headers.put("traceparent", visible("traceparent", options.traceparent()));
        }
        return headers;
    }

    /** A header's value. The JDK, too, refuses others, and shows them in its error. */
    private static String visible(String field, String value) {
        if (value == null || !value.chars().allMatch(c -> c > ' ' && c <= '~')) {
            throw new InvalidException(field, "must be printable ASCII without spaces");
        }
        return value;
    }

    private static String checkedQueue(String name) {
        if (name == null || name.isEmpty()) {
            throw new InvalidException("queue", "is empty: each client has one");
        }
        Text.utf8("queue", name);
        return name;
    }

    /** The options of a client. */
    public static final class Builder {
        private List<String> servers = List.of();
        private String queue;
        private Supplier<String> token = () -> "";
        private Duration timeout = Duration.ofSeconds(30);
        private Duration attemptTimeout = Duration.ofSeconds(5);
        private Path caFile;
        private Path certFile;
        private Path keyFile;
        private Transport transport;
        private ClientClock clock = ClientClock.SYSTEM;

        private Builder() {}

        /**
         * The bridges' addresses, such as {@code https://bridge-1:8080}. The client begins with one by chance, stays
         * with it, and goes on to the next if it fails.
         */
        public Builder servers(String... urls) {
            return servers(List.of(urls));
        }

        /** The bridges' addresses. */
        public Builder servers(List<String> urls) {
            servers = List.copyOf(urls);
            return this;
        }

        /** The queue of all calls. */
        public Builder queue(String name) {
            queue = name;
            return this;
        }

        /** The bearer token. */
        public Builder token(String token) {
            return token(() -> token);
        }

        /** What gives the bearer token, for each request; after a 401, another one is tried at once. */
        public Builder token(Supplier<String> source) {
            token = source;
            return this;
        }

        /** A file with the bearer token, which is read again after it was changed. */
        public Builder tokenFile(Path file) {
            return token(new TokenFile(file));
        }

        /**
         * How long a call may take with all its repetitions: 30 s unless it is given. If a bridge dies with a request,
         * the others answer a repetition under the same key after 15 s.
         */
        public Builder timeout(Duration timeout) {
            this.timeout = timeout;
            return this;
        }

        /** How long each request may take, half of that for the connection: 5 s unless it is given. */
        public Builder attemptTimeout(Duration timeout) {
            attemptTimeout = timeout;
            return this;
        }

        /** The roots of the bridges' certificates in PEM, in place of the machine's. */
        public Builder caFile(Path pem) {
            caFile = pem;
            return this;
        }

        /** The client's own certificate in PEM, with its chain, and its key (PKCS #8, not encrypted). */
        public Builder certificate(Path certPem, Path keyPem) {
            certFile = certPem;
            keyFile = keyPem;
            return this;
        }

        /** What sends requests, for example through a proxy; then the certificates are up to it. */
        public Builder transport(Transport transport) {
            this.transport = transport;
            return this;
        }

        /** The time and the chance, for tests. */
        public Builder clock(ClientClock clock) {
            this.clock = clock;
            return this;
        }

        /** Makes the client, without a request. Throws InvalidException if an option is missing or wrong. */
        public Client build() {
            checkedQueue(queue);
            if (servers.isEmpty()) {
                throw new InvalidException("servers", "is empty: give one or more");
            }
            List<String> urls = servers.stream().map(Builder::base).toList();
            positive("timeout", timeout);
            positive("attemptTimeout", attemptTimeout);
            if ((certFile == null) != (keyFile == null)) {
                throw new InvalidException("certificate", "has a certificate or a key alone: give both");
            }
            int first = (int) (clock.random() * urls.size());
            return new Client(this, new Call.Servers(urls, new AtomicInteger(first)), sender());
        }

        private Transport sender() {
            if (transport != null) {
                return transport;
            }
            boolean isOwn = caFile != null || certFile != null;
            return new JdkTransport(attemptTimeout.dividedBy(2), isOwn ? Pem.context(caFile, certFile, keyFile) : null);
        }

        private static void positive(String field, Duration d) {
            if (d.isNegative() || d.isZero()) {
                throw new InvalidException(field, d + ": must be more than 0");
            }
        }

        private static String base(String url) {
            try {
                URI uri = URI.create(url);
                boolean isHttp = "http".equals(uri.getScheme()) || "https".equals(uri.getScheme());
                if (isHttp && uri.getHost() != null && uri.getQuery() == null && uri.getFragment() == null) {
                    return url.replaceAll("/+$", "");
                }
            } catch (IllegalArgumentException e) {
                // What is wrong is said below.
            }
            throw new InvalidException("servers", url + ": give http:// or https://, a host, and perhaps a port");
        }
    }
}
