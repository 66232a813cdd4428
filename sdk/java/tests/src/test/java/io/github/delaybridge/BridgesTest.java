package io.github.delaybridge;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.github.delaybridge.outbox.Outbox;
import io.github.delaybridge.testing.DevBridge;
import java.io.BufferedInputStream;
import java.io.ByteArrayOutputStream;
import java.io.Closeable;
import java.io.IOException;
import java.io.InputStream;
import java.net.ServerSocket;
import java.net.Socket;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.sql.Connection;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** Schedules by real bridges: make sdk-java builds the program and names it in DELAYBRIDGE_TEST_BRIDGE. */
@Timeout(240)
class BridgesTest {
    private static final String TOPIC = "order.timeout";

    @TempDir
    private Path folder;

    private static DevBridge.Builder dev() {
        return DevBridge.builder().program(program());
    }

    private static Path program() {
        return Path.of(Environment.variable("DELAYBRIDGE_TEST_BRIDGE"));
    }

    /** Reads what is published on the topic, by NATS' own text protocol. */
    private static final class Consumer implements Closeable {
        private final Socket socket;
        private final InputStream in;

        Consumer(String url) throws IOException {
            URI nats = URI.create(url);
            socket = new Socket(nats.getHost(), nats.getPort());
            in = new BufferedInputStream(socket.getInputStream());
            say("CONNECT {\"verbose\":false,\"headers\":true}\r\nSUB " + TOPIC + " 1\r\nPING\r\n");
            while (!line().equals("PONG")) {
                continue;
            }
        }

        private void say(String text) throws IOException {
            socket.getOutputStream().write(text.getBytes(StandardCharsets.UTF_8));
        }

        private String line() throws IOException {
            ByteArrayOutputStream line = new ByteArrayOutputStream();
            for (int c = in.read(); c != '\n'; c = in.read()) {
                if (c < 0) {
                    throw new IOException("NATS has gone");
                }
                line.write(c);
            }
            return line.toString(StandardCharsets.UTF_8).strip();
        }

        /** The id of the next message. */
        String next() throws IOException {
            while (true) {
                String[] words = line().split(" ");
                if (words[0].equals("PING")) {
                    say("PONG\r\n");
                } else if (words[0].equals("HMSG")) {
                    byte[] all = in.readNBytes(Integer.parseInt(words[words.length - 1]) + 2);
                    for (String header : new String(all, StandardCharsets.UTF_8).split("\r\n")) {
                        if (header.toLowerCase().startsWith("delay-id:")) {
                            return header.substring(9).strip();
                        }
                    }
                }
            }
        }

        @Override
        public void close() throws IOException {
            socket.close();
        }
    }

    private static Message in(Duration delay, String id) {
        return Message.builder(TOPIC).id(id).after(delay).body("{}").build();
    }

    @Test
    void aScheduledMessageIsConsumed() throws Exception {
        try (DevBridge bridge = dev().start();
                Consumer consumer = new Consumer(bridge.natsUrl())) {
            Client client = bridge.client();
            Message m = in(Duration.ofDays(30), "order-42/timeout");
            ScheduleResult result = client.schedule(m);
            assertThat(result.status()).isEqualTo("created");
            assertThatThrownBy(() -> client.schedule(m))
                    .isInstanceOfSatisfying(DuplicateException.class, e -> {
                        assertThat(e.dueAt()).isEqualTo(result.dueAt());
                        assertThat(e.requestId()).isNotEmpty();
                    });
            client.schedule(in(Duration.ofDays(1), ".."));
            client.reschedule(Ref.of(".."), Due.after(Duration.ofDays(2)));
            assertThat(client.get(Ref.of(".."), true, CallOptions.NONE).body()).isEqualTo("{}".getBytes());
            assertThat(client.cancel("..").status()).isEqualTo("cancelled");
            bridge.advance(Duration.ofDays(31));
            assertThat(consumer.next()).isEqualTo("order-42/timeout");
        }
    }

    @Test
    void aRowOfATransactionIsConsumed() throws Exception {
        try (Database database = Database.postgres();
                DevBridge bridge = dev().outbox(database.dsn).start();
                Consumer consumer = new Consumer(bridge.natsUrl());
                Connection c = database.connect()) {
            Outbox box = Outbox.of(c, Outbox.TABLE); // The bridge has made it.
            box.schedule(c, "orders", in(Duration.ZERO, "rolled-back"));
            c.rollback();
            box.schedule(c, "orders", in(Duration.ZERO, "committed"));
            c.commit();
            assertThat(consumer.next()).isEqualTo("committed");
        }
    }

    /** A program that forgets to close its Batcher. */
    static final class Forgetful {
        public static void main(String[] args) throws Exception {
            Client client = Client.builder().servers(args[0]).queue("orders").build();
            Batcher.builder(client).linger(Duration.ofDays(1)).build().add(in(Duration.ofHours(1), "forgotten"));
        }
    }

    @Test
    void theEndOfAProgramSendsWhatWaits() throws Exception {
        try (DevBridge bridge = dev().start()) {
            String classes = System.getProperty("surefire.test.class.path", System.getProperty("java.class.path"));
            Path java = Path.of(System.getProperty("java.home"), "bin", "java");
            Process program = new ProcessBuilder(java.toString(), "-cp", classes, Forgetful.class.getName(), bridge.url())
                    .inheritIO()
                    .start();
            assertThat(program.waitFor()).isZero();
            assertThat(bridge.client().get(Ref.of("forgotten")).state()).isEqualTo("scheduled");
        }
    }

    /** Two bridges beside the first one, which has Redis and NATS. */
    private final class Others implements AutoCloseable {
        final List<String> urls = new ArrayList<>();
        private final List<Process> running = new ArrayList<>();

        Others(DevBridge first) throws Exception {
            for (int i = 0; i < 2; i++) {
                int port = freePort();
                Path config = folder.resolve(port + ".yaml");
                Files.writeString(config, """
                        instance: bridge-%d
                        redis: {url: %s}
                        queues: {orders: {sink: nats}}
                        sinks: {nats: {type: nats, url: %s}}
                        admin: {listen: 127.0.0.1:%d}
                        """.formatted(port, first.redisUrl(), first.natsUrl(), port));
                running.add(new ProcessBuilder(program().toString(), "run", "--config", config.toString())
                        .redirectErrorStream(true)
                        .redirectOutput(folder.resolve(port + ".log").toFile())
                        .start());
                urls.add("http://127.0.0.1:" + port);
                awaitReady(i, folder.resolve(port + ".log"));
            }
        }

        private void awaitReady(int i, Path log) throws Exception {
            HttpClient http = HttpClient.newBuilder().proxy(HttpClient.Builder.NO_PROXY).build();
            HttpRequest request = HttpRequest.newBuilder(URI.create(urls.get(i) + "/readyz")).build();
            while (true) {
                assertThat(running.get(i).isAlive()).as("%s", log).isTrue();
                try {
                    if (http.send(request, HttpResponse.BodyHandlers.discarding()).statusCode() == 200) {
                        return;
                    }
                } catch (IOException e) {
                    // It does not listen yet.
                }
                Thread.sleep(50); // Nothing tells when it does.
            }
        }

        void kill(String url) throws Exception {
            running.get(urls.indexOf(url)).destroyForcibly().waitFor();
        }

        @Override
        public void close() throws Exception {
            for (String url : urls) {
                kill(url);
            }
        }
    }

    private static int freePort() throws IOException {
        try (ServerSocket s = new ServerSocket(0)) {
            return s.getLocalPort();
        }
    }

    @Test
    void noMessageIsLostWhenABridgeDies() throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(8);
        try (DevBridge first = dev().start();
                Others others = new Others(first);
                Consumer consumer = new Consumer(first.natsUrl())) {
            List<String> asked = new ArrayList<>();
            Transport jdk = new JdkTransport(Duration.ofSeconds(5), null);
            CountDownLatch half = new CountDownLatch(200);
            Client client = Client.builder().servers(others.urls).queue("orders").transport((request, timeout) -> {
                synchronized (asked) {
                    asked.add("http://" + request.uri().getAuthority());
                }
                return jdk.send(request, timeout);
            }).build();
            List<Future<ScheduleResult>> calls = new ArrayList<>();
            List<CompletableFuture<ScheduleResult>> futures = new ArrayList<>();
            try (Batcher batcher = Batcher.builder(client).maxMessages(20).build()) {
                for (int i = 0; i < 400; i++) {
                    String n = "-" + i;
                    calls.add(pool.submit(() -> {
                        ScheduleResult result = client.schedule(in(Duration.ofHours(1), "one" + n));
                        half.countDown();
                        return result;
                    }));
                    futures.add(batcher.add(in(Duration.ofHours(1), "b" + n)));
                }
                half.await();
                String dying;
                synchronized (asked) {
                    dying = asked.get(0);
                }
                others.kill(dying);
                first.advance(Duration.ofSeconds(30)); // The dead bridge's requests are its own for 15 s.
                for (Future<ScheduleResult> call : calls) {
                    assertThat(call.get(2, TimeUnit.MINUTES).status()).isEqualTo("created");
                }
            }
            futures.forEach(f -> assertThat(f.join().status()).isEqualTo("created"));
            assertThat(new HashSet<>(asked)).hasSize(2);
            first.advance(Duration.ofHours(2));
            Set<String> found = new HashSet<>();
            while (found.size() < 800) {
                found.add(consumer.next());
            }
            assertThat(found).allMatch(id -> id.matches("(one|b)-\\d+"));
        } finally {
            pool.shutdownNow();
        }
    }
}
