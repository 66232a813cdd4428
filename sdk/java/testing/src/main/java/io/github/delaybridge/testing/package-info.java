/**
 * Tests programs that schedule. {@link io.github.delaybridge.testing.FakeBridge} is a bridge in memory, with a clock
 * that the test moves; {@link io.github.delaybridge.testing.DevBridge} is a real one, {@code bridge dev --memory}, as a
 * child process.
 */
package io.github.delaybridge.testing;
