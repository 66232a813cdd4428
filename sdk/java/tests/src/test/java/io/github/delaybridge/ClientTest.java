package io.github.delaybridge;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import com.fasterxml.jackson.databind.JsonNode;
import com.sun.net.httpserver.HttpsConfigurator;
import com.sun.net.httpserver.HttpsParameters;
import com.sun.net.httpserver.HttpsServer;
import io.github.delaybridge.internal.Json;
import io.github.delaybridge.testing.FakeBridge;
import java.net.ConnectException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicReference;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.TrustManagerFactory;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** What the vectors do not say: options, tokens from a file, certificates, interrupts. */
@Timeout(120)
class ClientTest {
    private static final Message MESSAGE = Message.builder("t").id("a").after(Duration.ofHours(1)).build();

    @TempDir
    private Path folder;

    @Test
    void wrongOptionsAreNamedWithTheirLimits() {
        assertThatThrownBy(() -> Client.builder().servers("http://a").build()).hasMessageContaining("queue is empty");
        Client.Builder b = Client.builder().queue("orders");
        assertThatThrownBy(b::build).hasMessageContaining("servers is empty");
        for (String url : List.of("bridge:8080", "ftp://a", "http://a?x=1", "http://")) {
            assertThatThrownBy(() -> b.servers(url).build()).hasMessageContaining("servers " + url + ": give http");
        }
        b.servers("http://a");
        assertThatThrownBy(() -> b.timeout(Duration.ZERO).build()).hasMessageContaining("timeout PT0S: must be more");
        assertThatThrownBy(() -> Due.after(null)).isInstanceOf(InvalidException.class);
        assertThatThrownBy(() -> Message.builder("t").body("\ud800")).hasMessageContaining("body has characters");
    }

    @Test
    void aMessageDoesNotShowItsPayload() {
        Message m = MESSAGE.toBuilder().body("secret").header("a", "secret").build();
        assertThat(m.toString()).contains("id=a").doesNotContain("secret");
        byte[] body = m.body();
        body[0] = 'x';
        assertThat(m.body()).isEqualTo("secret".getBytes(StandardCharsets.UTF_8));
    }

    @Test
    void aTokenFileIsReadAgainAfterItWasChanged() throws Exception {
        Path file = folder.resolve("token");
        FakeBridge bridge = new FakeBridge("orders");
        bridge.requireTokens(Map.of("token-22", "producer"));
        Client client = bridge.clientBuilder().queue("orders").tokenFile(file).build();
        assertThatThrownBy(() -> client.schedule(MESSAGE)).hasMessageContaining("tokenFile " + file + ": cannot be read");
        Files.writeString(file, "token-1\n");
        assertThatThrownBy(() -> client.schedule(MESSAGE)).isInstanceOf(UnauthorizedException.class);
        Files.writeString(file, "token-22\n");
        assertThat(client.schedule(MESSAGE).status()).isEqualTo("created");
        Files.delete(file); // It is being replaced.
        assertThat(client.cancel("a").status()).isEqualTo("cancelled");
    }

    @Test
    void aWrongTokenIsNotShown() {
        Client client = Client.builder().servers("http://127.0.0.1:1").queue("orders").token("secret\n").build();
        assertThatThrownBy(() -> client.schedule(MESSAGE))
                .isInstanceOf(InvalidException.class)
                .hasMessageContaining("token must be printable ASCII")
                .hasMessageNotContaining("secret");
    }

    @Test
    void anInterruptEndsACallAndSaysWhatIsKnown() throws Exception {
        CountDownLatch isSent = new CountDownLatch(1);
        Client hanging = Client.builder().servers("http://a").queue("orders").transport((request, timeout) -> {
            isSent.countDown();
            Thread.sleep(timeout.toMillis());
            throw new AssertionError("it was not interrupted");
        }).attemptTimeout(Duration.ofMinutes(1)).timeout(Duration.ofMinutes(1)).build();
        assertThat(interrupted(hanging, isSent)).isInstanceOf(UnknownException.class);
        CountDownLatch isRefused = new CountDownLatch(1);
        Client waiting = Client.builder().servers("http://a").queue("orders").transport((request, timeout) -> {
            throw new ConnectException("refused");
        }).clock(new ClientClock() {
            @Override
            public void sleep(Duration d) throws InterruptedException {
                isRefused.countDown();
                new CountDownLatch(1).await();
            }
        }).build();
        assertThat(interrupted(waiting, isRefused)).isInstanceOf(UnavailableException.class);
    }

    /** What a call ends with whose thread is interrupted then. */
    private static Exception interrupted(Client client, CountDownLatch then) throws InterruptedException {
        AtomicReference<Exception> end = new AtomicReference<>();
        Thread t = new Thread(() -> {
            try {
                client.schedule(MESSAGE);
            } catch (DelaybridgeException e) {
                assertThat(Thread.currentThread().isInterrupted()).isTrue();
                end.set(e);
            }
        });
        t.start();
        then.await();
        t.interrupt();
        t.join();
        return end.get();
    }

    @Test
    void anAnswerThatIsTooLargeIsNotKept() throws Exception {
        for (int more : List.of(0, 1)) {
            String text = "x".repeat(JdkTransport.MOST_ANSWER + more);
            try (Scripted servers = new Scripted(1)) {
                JsonNode answer = Json.object().put("status", 200).put("text", text);
                servers.play(List.of(Json.object().put("server", 0).set("answer", answer)));
                Transport jdk = new JdkTransport(Duration.ofSeconds(5), null);
                var request = new Transport.Request("POST", URI.create(servers.urls().get(0)), Map.of(), null);
                if (more == 0) {
                    assertThat(jdk.send(request, Duration.ofMinutes(1)).body()).hasSize(JdkTransport.MOST_ANSWER);
                } else {
                    assertThatThrownBy(() -> jdk.send(request, Duration.ofMinutes(1))).hasMessageContaining("33554432 bytes");
                }
            }
        }
    }

    /** A clock that waiting moves. */
    private static final class MovedClock implements ClientClock {
        private long time;

        @Override
        public long nanos() {
            return time;
        }

        @Override
        public void sleep(Duration d) {
            time += d.toNanos();
        }
    }

    /** A server with a certificate, which wants one of its clients. */
    private HttpsServer server() throws Exception {
        KeyStore store = keys("server", "-ext", "san=ip:127.0.0.1");
        KeyStore clients = keys("client");
        KeyManagerFactory own = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
        own.init(store, "changeit".toCharArray());
        TrustManagerFactory trusted = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        KeyStore roots = KeyStore.getInstance("PKCS12");
        roots.load(null, null);
        roots.setCertificateEntry("client", clients.getCertificate("client"));
        trusted.init(roots);
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(own.getKeyManagers(), trusted.getTrustManagers(), null);
        HttpsServer server = HttpsServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);
        server.setHttpsConfigurator(new HttpsConfigurator(context) {
            @Override
            public void configure(HttpsParameters p) {
                SSLParameters parameters = context.getDefaultSSLParameters();
                parameters.setNeedClientAuth(true);
                p.setSSLParameters(parameters);
            }
        });
        server.createContext("/", exchange -> {
            byte[] body = "{\"status\": \"cancelled\", \"maybe_published\": false}".getBytes(StandardCharsets.UTF_8);
            exchange.sendResponseHeaders(200, body.length);
            exchange.getResponseBody().write(body);
            exchange.close();
        });
        server.start();
        return server;
    }

    /** A new key and its certificate, which are also written as PEM. */
    private KeyStore keys(String name, String... more) throws Exception {
        Path file = folder.resolve(name + ".p12");
        List<String> command = new ArrayList<>(List.of(
                Path.of(System.getProperty("java.home"), "bin", "keytool").toString(), "-genkeypair", "-alias", name,
                "-keyalg", "EC", "-dname", "CN=" + name, "-keystore", file.toString(), "-storepass", "changeit"));
        command.addAll(List.of(more));
        assertThat(new ProcessBuilder(command).inheritIO().start().waitFor()).isZero();
        KeyStore store = KeyStore.getInstance(file.toFile(), "changeit".toCharArray());
        pem(name + ".pem", "CERTIFICATE", store.getCertificate(name).getEncoded());
        pem(name + ".key", "PRIVATE KEY", store.getKey(name, "changeit".toCharArray()).getEncoded());
        return store;
    }

    private void pem(String file, String kind, byte[] encoded) throws Exception {
        String text = Base64.getMimeEncoder(64, new byte[] {'\n'}).encodeToString(encoded);
        Files.writeString(folder.resolve(file), "-----BEGIN " + kind + "-----\n" + text + "\n-----END " + kind + "-----\n");
    }

    @Test
    void certificatesArePem() throws Exception {
        HttpsServer server = server();
        try {
            String url = "https://127.0.0.1:" + server.getAddress().getPort();
            Duration patience = Duration.ofMinutes(1); // The handshakes take real time, and the waits none.
            Client.Builder b = Client.builder().servers(url).queue("orders").clock(new MovedClock());
            b.timeout(patience).attemptTimeout(patience);
            Client client = b.caFile(folder.resolve("server.pem"))
                    .certificate(folder.resolve("client.pem"), folder.resolve("client.key"))
                    .build();
            assertThat(client.cancel("a").status()).isEqualTo("cancelled");
            Client stranger = b.certificate(null, null).build();
            assertThatThrownBy(() -> stranger.cancel("a")).isInstanceOf(DelaybridgeException.class);
            Client suspicious = b.caFile(folder.resolve("client.pem")).build();
            assertThatThrownBy(() -> suspicious.cancel("a")).isInstanceOf(UnavailableException.class);
            Path none = folder.resolve("none.pem");
            assertThatThrownBy(() -> b.caFile(none).build()).hasMessageContaining("caFile " + none + ": cannot be read");
            Path wrong = folder.resolve("server.pem");
            assertThatThrownBy(() -> b.caFile(null).certificate(wrong, wrong).build()).hasMessageContaining("keyFile");
        } finally {
            server.stop(0);
        }
    }
}
