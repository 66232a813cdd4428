package io.github.delaybridge;

/**
 * What a cancel or a reschedule did.
 *
 * @param status {@code cancelled} or {@code rescheduled}
 * @param maybePublished it was done, but a copy may be out already
 * @param notDurable it was done, but not confirmed in time as the queue's durability asks
 */
public record ChangeResult(String status, boolean maybePublished, boolean notDurable) {}
