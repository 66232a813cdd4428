/**
 * Schedules messages in a transaction of your own database: if it commits, its messages are published; if it rolls back,
 * they never existed. The calls write rows into a table that {@code bridge outbox migrate up} makes, and a bridge with
 * that database in its configuration takes them.
 */
package io.github.delaybridge.outbox;
