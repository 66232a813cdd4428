package io.github.delaybridge;

import io.github.delaybridge.internal.Text;
import java.time.Duration;
import java.time.Instant;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * A message to schedule. It has a topic and a due time, and perhaps more; {@link #builder} makes it.
 *
 * <p>id, key, topic, headers and body have 960 KiB together at most.
 */
public final class Message {
    private final Builder values;

    private Message(Builder values) {
        this.values = values;
    }

    /** Begins a message to the topic: a Kafka topic, a RabbitMQ routing key or a NATS subject. */
    public static Builder builder(String topic) {
        Builder b = new Builder();
        b.topic = topic;
        return b;
    }

    /** A builder that has all of this message. */
    public Builder toBuilder() {
        return values.copy();
    }

    /** Where it is published. */
    public String topic() {
        return values.topic;
    }

    /** When it is due, or null. */
    public Due due() {
        return values.due;
    }

    /** Its name within its key; empty: a new one is made. */
    public String id() {
        return values.id;
    }

    /** Its key; messages of one key and topic are published in due order. */
    public String key() {
        return values.key;
    }

    /** Id and key. */
    public Ref ref() {
        return new Ref(id(), key());
    }

    /** Its payload. */
    public byte[] body() {
        return values.body.clone();
    }

    /** Its headers, which pass through unchanged. */
    public Map<String, String> headers() {
        return values.headers;
    }

    /** By which operators and cancelAll find it. */
    public List<String> tags() {
        return values.tags;
    }

    /** For how long it can be put off in all, or null. */
    public Duration maxWait() {
        return values.maxWait;
    }

    /** How late it may be, or null. */
    public Late late() {
        return values.late;
    }

    /** What to do if its identity is taken, or null. */
    public Conflict conflict() {
        return values.conflict;
    }

    /** Names the message, and never shows its payload. */
    @Override
    public String toString() {
        return "Message[topic=" + topic() + ", id=" + id() + ", key=" + key() + ", due=" + due() + "]";
    }

    /** Makes a message. Limits are checked when it is scheduled. */
    public static final class Builder {
        private String topic;
        private Due due;
        private String id = "";
        private String key = "";
        private byte[] body = {};
        private Map<String, String> headers = Map.of();
        private List<String> tags = List.of();
        private Duration maxWait;
        private Late late;
        private Conflict conflict;

        private Builder() {}

        /** When it is due. */
        public Builder due(Due due) {
            this.due = due;
            return this;
        }

        /** Due after a delay. */
        public Builder after(Duration delay) {
            return due(Due.after(delay));
        }

        /** Due at an instant. */
        public Builder at(Instant instant) {
            return due(Due.at(instant));
        }

        /** Names it within its key, 255 bytes at most. */
        public Builder id(String id) {
            this.id = id;
            return this;
        }

        /** Messages of one key and topic are published in due order; 255 bytes at most. */
        public Builder key(String key) {
            this.key = key;
            return this;
        }

        /** Its payload. */
        public Builder body(byte[] body) {
            this.body = body.clone();
            return this;
        }

        /** Its payload as UTF-8. Throws InvalidException if the text is none. */
        public Builder body(String text) {
            this.body = Text.utf8("body", text);
            return this;
        }

        /** Adds a header: 64 at most; {@code delay-*} and {@code nats-*} are reserved. */
        public Builder header(String name, String value) {
            Map<String, String> more = new LinkedHashMap<>(headers);
            more.put(name, value);
            headers = Collections.unmodifiableMap(more);
            return this;
        }

        /** Its tags, 8 at most. */
        public Builder tags(String... tags) {
            this.tags = List.of(tags);
            return this;
        }

        /**
         * Debounces: with a delay and {@link Conflict#REPLACE}, each call puts the message off, but not beyond that
         * time after the first one.
         */
        public Builder maxWait(Duration maxWait) {
            this.maxWait = maxWait;
            return this;
        }

        /** How late it may be. */
        public Builder late(Late late) {
            this.late = late;
            return this;
        }

        /** What to do if its identity is taken. */
        public Builder conflict(Conflict conflict) {
            this.conflict = conflict;
            return this;
        }

        /** The message. */
        public Message build() {
            return new Message(copy());
        }

        private Builder copy() {
            Builder b = new Builder();
            b.topic = topic;
            b.due = due;
            b.id = id;
            b.key = key;
            b.body = body;
            b.headers = headers;
            b.tags = tags;
            b.maxWait = maxWait;
            b.late = late;
            b.conflict = conflict;
            return b;
        }
    }
}
