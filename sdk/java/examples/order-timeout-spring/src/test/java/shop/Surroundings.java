package shop;

import io.github.delaybridge.testing.DevBridge;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.Map;
import java.util.UUID;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** A database of its own at the server that DELAYBRIDGE_TEST_POSTGRES_URL names, and a bridge with NATS before it. */
final class Surroundings implements AutoCloseable {
    final DevBridge bridge;

    private final String server;
    private final String name = "shop_" + UUID.randomUUID().toString().replace("-", "");
    private final Matcher dsn;

    Surroundings(String url) throws SQLException {
        dsn = Pattern.compile("postgres://(.+?):(.*)@([^/]+)/.*").matcher(url);
        if (!dsn.matches()) {
            throw new IllegalArgumentException("DELAYBRIDGE_TEST_POSTGRES_URL must be postgres://user:password@host:port/name");
        }
        server = "jdbc:postgresql://" + dsn.group(3) + "/";
        run("CREATE DATABASE " + name);
        String own = url.replaceFirst("/[^/?]*(\\?|$)", "/" + name + "$1");
        bridge = DevBridge.builder().outbox(own).start();
    }

    /** The application's properties. */
    Map<String, Object> properties() {
        return Map.of(
                "spring.datasource.url", server + name,
                "spring.datasource.username", dsn.group(1),
                "spring.datasource.password", dsn.group(2),
                "nats.url", bridge.natsUrl());
    }

    private void run(String sql) throws SQLException {
        try (Connection c = DriverManager.getConnection(server + "postgres", dsn.group(1), dsn.group(2));
                Statement s = c.createStatement()) {
            s.execute(sql);
        }
    }

    @Override
    public void close() throws SQLException {
        bridge.close();
        run("DROP DATABASE " + name + " WITH (FORCE)");
    }
}
