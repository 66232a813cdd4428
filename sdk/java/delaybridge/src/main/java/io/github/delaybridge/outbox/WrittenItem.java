package io.github.delaybridge.outbox;

import io.github.delaybridge.DelaybridgeException;

/**
 * The outcome of one message of a batch.
 *
 * @param written null if there is an error
 * @param error InvalidException or DuplicateException; null if there is none
 */
public record WrittenItem(Written written, DelaybridgeException error) {}
