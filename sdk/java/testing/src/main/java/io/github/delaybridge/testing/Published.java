package io.github.delaybridge.testing;

import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.util.Map;

/**
 * A message as a consumer gets it.
 *
 * @param queue its queue
 * @param id its id
 * @param key its key, perhaps empty
 * @param topic its topic
 * @param body its payload
 * @param headers its own, and those that the bridge adds, such as delay-id
 * @param dueAt when it was due
 * @param publishedAt when it was published
 */
public record Published(
        String queue,
        String id,
        String key,
        String topic,
        byte[] body,
        Map<String, String> headers,
        Instant dueAt,
        Instant publishedAt) {
    /** The payload as text. */
    public String text() {
        return new String(body, StandardCharsets.UTF_8);
    }
}
