package io.github.delaybridge;

/**
 * What a cancelAll did. Repeat the call until all counts are 0 and there is no more.
 *
 * @param done cancelled messages; those of a lost answer are not among them
 * @param maybePublished those of which a copy may be out already
 * @param tooLate those in flight: each is published, or waits again soon
 * @param more the call's time was over
 * @param notDurable it was done, but not confirmed in time as the queue's durability asks
 */
public record CancelCount(int done, int maybePublished, int tooLate, boolean more, boolean notDurable) {}
