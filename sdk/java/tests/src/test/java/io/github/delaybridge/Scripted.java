package io.github.delaybridge;

import com.fasterxml.jackson.databind.JsonNode;
import io.github.delaybridge.internal.Json;
import java.io.BufferedInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Deque;
import java.util.HashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;

/** Servers on real sockets, which answer the attempts of a script in its order, whichever of them is asked. */
final class Scripted implements AutoCloseable {
    final List<Received> received = new ArrayList<>();
    final List<String> wrong = new ArrayList<>();

    private final Deque<JsonNode> script = new ArrayDeque<>();
    private final Server[] servers;
    private final List<Thread> threads = new ArrayList<>();

    record Received(int server, String method, String target, Map<String, String> headers, byte[] body) {}

    private static final class Server {
        int port;
        ServerSocket listener;
        Thread acceptor;
        boolean hasReset;
        final Set<Socket> connections = new HashSet<>();
    }

    Scripted(int count) {
        servers = new Server[count];
        for (int i = 0; i < count; i++) {
            servers[i] = new Server();
            listen(i);
        }
    }

    synchronized List<String> urls() {
        List<String> urls = new ArrayList<>();
        for (Server s : servers) {
            urls.add("http://127.0.0.1:" + s.port);
        }
        return urls;
    }

    synchronized void play(Collection<JsonNode> steps) {
        script.clear();
        script.addAll(steps);
        received.clear();
    }

    synchronized void listen(int server) {
        Server s = servers[server];
        if (s.listener != null) {
            return;
        }
        try {
            ServerSocket listener = new ServerSocket();
            listener.setReuseAddress(true);
            listener.bind(new InetSocketAddress(InetAddress.getLoopbackAddress(), s.port));
            s.listener = listener;
            s.port = listener.getLocalPort();
            s.acceptor = start(() -> accept(server, listener));
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    /** The kernel goes on listening until the thread has left accept. */
    void refuse(int server) {
        Thread acceptor = shut(servers[server]);
        while (acceptor != null && acceptor.isAlive()) {
            try {
                acceptor.join();
            } catch (InterruptedException e) {
                throw new AssertionError(e);
            }
        }
    }

    private synchronized Thread shut(Server s) {
        try {
            if (s.listener != null) {
                s.listener.close();
                s.listener = null;
            }
            for (Socket c : s.connections) {
                c.close();
            }
            return s.acceptor;
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    @Override
    public void close() throws InterruptedException {
        for (int i = 0; i < servers.length; i++) {
            refuse(i);
        }
        for (Thread t : List.copyOf(threads)) {
            t.join();
        }
    }

    private synchronized Thread start(Runnable run) {
        Thread t = new Thread(run, "scripted");
        t.setDaemon(true);
        threads.add(t);
        t.start();
        return t;
    }

    private void accept(int server, ServerSocket listener) {
        while (true) {
            try {
                Socket connection = listener.accept();
                synchronized (this) {
                    JsonNode next = peek();
                    boolean isReset = isStep(next, server) && next.path("fault").asText().equals("reset");
                    // The JDK itself connects once more, where a connection ends while it is made: see decision 083.
                    boolean isAgain = servers[server].hasReset && !isStep(next, server);
                    if (isReset || isAgain) {
                        servers[server].hasReset = isReset;
                        if (isReset) {
                            script.remove();
                        }
                        reset(connection);
                        continue;
                    }
                    servers[server].connections.add(connection);
                }
                start(() -> serve(server, connection));
            } catch (IOException e) {
                return; // It refuses from now on.
            }
        }
    }

    /** The next attempt that a server notices, or null. */
    private JsonNode peek() {
        while (!script.isEmpty() && script.peek().path("fault").asText().equals("refused")) {
            script.remove();
        }
        return script.peek();
    }

    private static boolean isStep(JsonNode step, int server) {
        return step != null && step.path("server").asInt() == server;
    }

    private void serve(int server, Socket connection) {
        try (connection) {
            InputStream in = new BufferedInputStream(connection.getInputStream());
            for (Received r = read(server, in); r != null; r = read(server, in)) {
                JsonNode step;
                synchronized (this) {
                    received.add(r);
                    if (!isStep(peek(), server)) {
                        wrong.add("server " + server + " was asked: " + r.method + " " + r.target);
                        return;
                    }
                    step = script.remove();
                }
                if (!act(connection, in, step)) {
                    return;
                }
            }
        } catch (IOException e) {
            // The client has gone.
        } finally {
            synchronized (this) {
                servers[server].connections.remove(connection);
            }
        }
    }

    private static Received read(int server, InputStream in) throws IOException {
        String line = line(in);
        if (line.isEmpty()) {
            return null;
        }
        String[] parts = line.split(" ");
        Map<String, String> headers = new TreeMap<>();
        for (line = line(in); !line.isEmpty(); line = line(in)) {
            String[] header = line.split(": *", 2);
            headers.put(header[0].toLowerCase(Locale.ROOT), header[1]);
        }
        byte[] body = in.readNBytes(Integer.parseInt(headers.getOrDefault("content-length", "0")));
        return new Received(server, parts[0], parts[1], headers, body);
    }

    private static String line(InputStream in) throws IOException {
        ByteArrayOutputStream line = new ByteArrayOutputStream();
        for (int c = in.read(); c != -1 && c != '\n'; c = in.read()) {
            line.write(c);
        }
        return line.toString(StandardCharsets.UTF_8).stripTrailing();
    }

    /** Returns whether the connection lives on. */
    private static boolean act(Socket connection, InputStream in, JsonNode step) throws IOException {
        switch (step.path("fault").asText()) {
            case "" -> {
                JsonNode a = step.path("answer");
                String body = a.has("text") ? a.path("text").asText() : Json.text(a.path("body"));
                answer(connection, a.path("status").asInt(), a.path("headers"), body, 0);
                return true;
            }
            case "garbled" -> {
                answer(connection, 200, Json.object(), "<htm>", 0);
                return true;
            }
            case "cut" -> answer(connection, 201, Json.object(), "{\"id\": \"a\", \"ke", 50);
            case "hang" -> in.read(); // Until the client goes.
            case "dropped" -> reset(connection);
            default -> throw new AssertionError(step);
        }
        return false;
    }

    /** missing is how many bytes it promises and does not send. */
    private static void answer(Socket connection, int status, JsonNode headers, String text, int missing)
            throws IOException {
        byte[] body = text.getBytes(StandardCharsets.UTF_8);
        StringBuilder head = new StringBuilder("HTTP/1.1 " + status + " Status\r\n");
        headers.properties().forEach(h -> head.append(h.getKey() + ": " + h.getValue().asText() + "\r\n"));
        head.append("Content-Length: " + (body.length + missing) + "\r\n\r\n");
        ByteArrayOutputStream all = new ByteArrayOutputStream();
        all.writeBytes(head.toString().getBytes(StandardCharsets.UTF_8));
        all.writeBytes(body);
        connection.getOutputStream().write(all.toByteArray());
    }

    private static void reset(Socket connection) throws IOException {
        connection.setSoLinger(true, 0);
        connection.close();
    }
}
