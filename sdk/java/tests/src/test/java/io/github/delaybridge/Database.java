package io.github.delaybridge;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.SecureRandom;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.ArrayList;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;

/** A database of its own, with the table box, at the servers that DELAYBRIDGE_TEST_*_URL name. */
final class Database implements AutoCloseable {
    private static final Path SCHEMAS = Path.of("..", "..", "..", "delay", "outbox", "schema");

    final String url;
    /** As the bridge's configuration has it. */
    final String dsn;

    private final String server;
    private final String name;
    private final String end;

    private Database(String server, String name, String url, String dsn, String end, String dialect)
            throws SQLException, IOException {
        this.server = server;
        this.name = name;
        this.url = url;
        this.dsn = dsn;
        this.end = end;
        run(server, "CREATE DATABASE " + name);
        run(url, statements(dialect).toArray(String[]::new));
    }

    static Database postgres() throws SQLException, IOException {
        String dsn = Environment.variable("DELAYBRIDGE_TEST_POSTGRES_URL");
        Matcher m = matched("postgres://([^:@]+):?([^@]*)@([^/]+)/.*", dsn);
        String login = "?sslmode=disable&user=" + m.group(1) + "&password=" + m.group(2);
        String server = "jdbc:postgresql://" + m.group(3) + "/";
        String name = newName();
        String own = dsn.replaceFirst("/[^/?]*(\\?|$)", "/" + name + "$1");
        return new Database(server + "postgres" + login, name, server + name + login, own, " WITH (FORCE)", "postgres");
    }

    static Database mariadb() throws SQLException, IOException {
        Matcher m = matched("(.*):(.*)@tcp\\((.*)\\)/.*", Environment.variable("DELAYBRIDGE_TEST_MARIADB_URL"));
        String login = "?user=" + m.group(1) + "&password=" + m.group(2);
        String server = "jdbc:mariadb://" + m.group(3) + "/";
        String name = newName();
        return new Database(server + login, name, server + name + login, "", "", "mysql");
    }

    private static Matcher matched(String pattern, String text) {
        Matcher m = Pattern.compile(pattern).matcher(text);
        if (!m.matches()) {
            throw new AssertionError("the form of the server's URL is not " + pattern);
        }
        return m;
    }

    private static String newName() {
        return "test_" + Long.toHexString(new SecureRandom().nextLong());
    }

    /** The migrations' statements. */
    private static List<String> statements(String dialect) throws IOException {
        List<String> all = new ArrayList<>();
        try (Stream<Path> files = Files.list(SCHEMAS.resolve(dialect))) {
            for (Path file : files.filter(f -> f.toString().endsWith(".sql")).sorted().toList()) {
                String up = Files.readString(file).split("-- \\+goose Up\n")[1].split("-- \\+goose Down\n")[0];
                String named = up.replaceAll("(?m)^\\s*--.*$", "").replaceAll("(app\\.)?delay_outbox", "box");
                Stream.of(named.split(";\n")).map(String::strip).filter(s -> !s.isEmpty()).forEach(all::add);
            }
        }
        return all;
    }

    private static void run(String url, String... statements) throws SQLException {
        try (Connection c = DriverManager.getConnection(url);
                Statement s = c.createStatement()) {
            for (String one : statements) {
                s.execute(one);
            }
        }
    }

    /** A connection without autocommit. */
    Connection connect() throws SQLException {
        Connection c = DriverManager.getConnection(url);
        c.setAutoCommit(false);
        return c;
    }

    @Override
    public void close() throws SQLException {
        run(server, "DROP DATABASE " + name + end);
    }
}
