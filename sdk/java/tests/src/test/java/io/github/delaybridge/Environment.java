package io.github.delaybridge;

import static org.junit.jupiter.api.Assertions.fail;
import static org.junit.jupiter.api.Assumptions.abort;

/** What make sdk-java tells the tests. */
final class Environment {
    private Environment() {}

    /** A variable; without it the test is skipped, in CI it fails. */
    static String variable(String name) {
        String value = System.getenv(name);
        if (value == null || value.isEmpty()) {
            String message = name + " is not set: make sdk-java sets it";
            return "true".equals(System.getenv("CI")) ? fail(message) : abort(message);
        }
        return value;
    }
}
