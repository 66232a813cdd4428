package io.github.delaybridge;

import java.time.Instant;
import java.util.List;
import java.util.Map;

/**
 * A message as it is now.
 *
 * @param id the message's
 * @param key its key, perhaps empty
 * @param queue its queue
 * @param topic its topic
 * @param state {@code scheduled}, {@code parked}, {@code in_flight} or {@code dead}; from a queue's history also
 *     {@code published}, {@code cancelled}, {@code dropped} or {@code purged}
 * @param dueAt when it is due
 * @param scheduledAt when it was scheduled; null if that is not known any more
 * @param attempt the next attempt, from 1
 * @param maybePublished a copy may be out
 * @param tags its tags, in order
 * @param headers its headers
 * @param body null if it was not asked for
 * @param reason why it is dead, or null
 * @param route the closed route for which it is parked, or null
 * @param sealedBy the key that the body is encrypted with, or null
 * @param end how it, or the message before it, ended, or null
 */
public record StoredMessage(
        String id,
        String key,
        String queue,
        String topic,
        String state,
        Instant dueAt,
        Instant scheduledAt,
        int attempt,
        boolean maybePublished,
        List<String> tags,
        Map<String, String> headers,
        byte[] body,
        String reason,
        String route,
        String sealedBy,
        End end) {
    /**
     * How a message ended.
     *
     * @param state {@code published}, {@code cancelled}, {@code dropped}, {@code purged} or {@code dead}
     * @param at when
     * @param place where the broker has it, or null
     * @param topic where it was published, or null
     * @param attempt the attempt, or 0
     * @param reason why, or null
     */
    public record End(String state, Instant at, String place, String topic, int attempt, String reason) {}
}
