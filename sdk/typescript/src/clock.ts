import { setTimeout as wait } from "node:timers/promises";

/** What a client waits by. Tests have one that they move: that of `FakeBridge`. */
export interface Clock {
  /** The time in milliseconds since 1970. */
  now(): number;
  /** Resolves after so many milliseconds; rejects with the signal's reason if that is aborted first. */
  sleep(ms: number, signal?: AbortSignal): Promise<void>;
}

/** The time that passes by itself. Setting the computer's clock does not change it. */
export const realTime: Clock = {
  now: () => performance.timeOrigin + performance.now(),
  async sleep(ms, signal) {
    try {
      await wait(ms, undefined, signal === undefined ? {} : { signal });
    } catch (error) {
      throw signal?.aborted ? signal.reason : error;
    }
  },
};
