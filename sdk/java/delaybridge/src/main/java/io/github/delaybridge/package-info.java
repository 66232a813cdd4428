/**
 * Schedules messages that delaybridge publishes to Kafka, RabbitMQ or NATS when they are due.
 *
 * <p>{@link io.github.delaybridge.Client} speaks the HTTP API, {@link io.github.delaybridge.Batcher} gathers messages
 * into batches in the background, and {@link io.github.delaybridge.outbox.Outbox} writes messages into a table in your
 * own transaction. The artifact {@code delaybridge-testing} replaces the bridge in tests, with a clock that is moved.
 */
package io.github.delaybridge;
