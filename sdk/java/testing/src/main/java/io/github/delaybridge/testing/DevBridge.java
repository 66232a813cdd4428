package io.github.delaybridge.testing;

import io.github.delaybridge.Client;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * A real bridge with its own Redis and NATS, {@code bridge dev --memory}, as a child process.
 *
 * <pre>{@code
 * @AutoClose
 * static final DevBridge bridge = DevBridge.start();
 * }</pre>
 *
 * <p>The program is what the system property {@code delaybridge.bridge} or the environment's {@code DELAYBRIDGE_BRIDGE}
 * names, otherwise {@code bridge} in PATH. It ends with {@link #close}, or with the JVM.
 */
public final class DevBridge implements AutoCloseable {
    /** How long the bridge may take to start, and to move its clock. */
    private static final Duration PATIENCE = Duration.ofMinutes(1);

    private static final int MOST_LINES = 200;
    private static final HttpClient HTTP = HttpClient.newBuilder()
            .version(HttpClient.Version.HTTP_1_1)
            .proxy(HttpClient.Builder.NO_PROXY)
            .build();
    private static final Pattern READY = Pattern.compile("Ctrl-C ends it");

    private final Process process;
    private final Thread reader;
    private final Thread hook;
    private final List<String> lines = new ArrayList<>(); // Under its own lock.
    private final CompletableFuture<String> ready = new CompletableFuture<>();

    private DevBridge(Process process) {
        this.process = process;
        reader = new Thread(this::read, "delaybridge-dev");
        reader.setDaemon(true);
        reader.start();
        hook = new Thread(process::destroy, "delaybridge-dev-end");
        Runtime.getRuntime().addShutdownHook(hook);
    }

    /** Starts a bridge, and waits until it is ready. */
    public static DevBridge start() {
        return builder().start();
    }

    /** Begins a bridge with options. */
    public static Builder builder() {
        return new Builder();
    }

    /** The address for clients. */
    public String url() {
        return "http://" + said("Console\\s+http://([^/\\s]+)/");
    }

    /** The address of NATS, where it publishes. */
    public String natsUrl() {
        return said("NATS\\s+(nats://\\S+)");
    }

    /** The address of its Redis. */
    public String redisUrl() {
        return said("Redis\\s+(redis://\\S+)");
    }

    /** A client of the queue that it has: {@code orders}. */
    public Client client() {
        return Client.builder().servers(url()).queue("orders").build();
    }

    /**
     * Moves the bridge's clock forward. Every message that becomes due is published at its due time. The clocks of
     * programs and databases stay.
     */
    public void advance(Duration by) {
        String body = "{\"by\": \"" + by.toMillis() + "ms\"}";
        HttpRequest request = HttpRequest.newBuilder(URI.create(url() + "/dev/clock/advance"))
                .timeout(PATIENCE)
                .POST(HttpRequest.BodyPublishers.ofString(body))
                .build();
        try {
            HttpResponse<String> answer = HTTP.send(request, HttpResponse.BodyHandlers.ofString());
            if (answer.statusCode() != 200) {
                throw new IllegalStateException("the clock was not moved: " + answer.body());
            }
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new IllegalStateException(e);
        }
    }

    /** Ends the bridge, and waits for that. What it had is gone. */
    @Override
    public void close() {
        process.destroy();
        try {
            if (!process.waitFor(20, TimeUnit.SECONDS)) {
                process.destroyForcibly().waitFor();
            }
            reader.join();
        } catch (InterruptedException e) {
            process.destroyForcibly();
            Thread.currentThread().interrupt();
        }
        try {
            Runtime.getRuntime().removeShutdownHook(hook);
        } catch (IllegalStateException e) {
            // The JVM is ending.
        }
    }

    /** Keeps the first lines, which say what listens where; all are read, so that the bridge never waits. */
    private void read() {
        try (BufferedReader out = process.inputReader(StandardCharsets.UTF_8)) {
            for (String line = out.readLine(); line != null; line = out.readLine()) {
                synchronized (lines) {
                    if (lines.size() < MOST_LINES) {
                        lines.add(line);
                    }
                }
                if (READY.matcher(line).find()) {
                    ready.complete(output());
                }
            }
        } catch (IOException e) {
            // The process has gone.
        }
        ready.completeExceptionally(new IllegalStateException("the bridge has ended:\n" + output()));
    }

    private String output() {
        synchronized (lines) {
            return String.join("\n", lines);
        }
    }

    private String said(String pattern) {
        Matcher found = Pattern.compile(pattern).matcher(ready.join());
        if (!found.find()) {
            throw new IllegalStateException("the bridge did not print " + pattern + ":\n" + output());
        }
        return found.group(1);
    }

    /** The options of a bridge. */
    public static final class Builder {
        private String program = program();
        private String outbox;

        private Builder() {}

        private static String program() {
            String named = System.getProperty("delaybridge.bridge", System.getenv("DELAYBRIDGE_BRIDGE"));
            return named == null || named.isEmpty() ? "bridge" : named;
        }

        /** The program. */
        public Builder program(Path file) {
            program = file.toString();
            return this;
        }

        /**
         * Relays the outbox of this database, {@code postgres://…} or {@code user:password@tcp(host:3306)/name}, and
         * makes its tables.
         */
        public Builder outbox(String dsn) {
            outbox = dsn;
            return this;
        }

        /** Starts the bridge, and waits until it is ready. */
        public DevBridge start() {
            List<String> command = new ArrayList<>(List.of(program, "dev", "--memory"));
            if (outbox != null) {
                command.addAll(List.of("--outbox", outbox));
            }
            DevBridge bridge;
            try {
                bridge = new DevBridge(new ProcessBuilder(command).redirectErrorStream(true).start());
            } catch (IOException e) {
                String help = "name the bridge's program in the system property delaybridge.bridge: ";
                throw new UncheckedIOException(help + e.getMessage(), e);
            }
            bridge.await();
            try {
                if (outbox != null) {
                    bridge.migrate(program);
                }
                return bridge;
            } catch (RuntimeException e) {
                bridge.close();
                throw e;
            }
        }
    }

    private void migrate(String program) {
        String config = said("Folder\\s+(\\S+)") + "/bridge.yaml";
        try {
            Process p = new ProcessBuilder(program, "outbox", "migrate", "up", "--config", config)
                    .redirectErrorStream(true)
                    .start();
            String said = new String(p.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
            if (p.waitFor() != 0) {
                throw new IllegalStateException("the outbox' tables cannot be made:\n" + said);
            }
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new IllegalStateException(e);
        }
    }

    private void await() {
        try {
            ready.get(PATIENCE.toSeconds(), TimeUnit.SECONDS);
        } catch (TimeoutException | ExecutionException e) {
            close();
            throw new IllegalStateException("the bridge did not start:\n" + output(), e);
        } catch (InterruptedException e) {
            close();
            Thread.currentThread().interrupt();
            throw new IllegalStateException(e);
        }
    }
}
