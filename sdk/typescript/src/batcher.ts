import type { BatchItem, Client, ScheduleResult } from "./client.js";
import { DelaybridgeError, invalid } from "./errors.js";
import { type Message, wireMessage } from "./message.js";

/** When a batch is sent, and how much may wait for it. */
export interface BatcherOptions {
  /** A batch has at most so many messages: 500 by default, 1,000 at most. */
  maxMessages?: number;
  /** A batch's request has at most so many bytes, unless a message alone has more: 1 MiB by default. */
  maxBytes?: number;
  /** A message waits at most so many milliseconds for others: 5 by default. */
  linger?: number;
  /** So many batches may be under way at once: 2 by default. */
  maxInFlight?: number;
  /** So many messages have room, with those under way: 10,000 by default. Others wait outside. */
  maxQueued?: number;
  /** So many bytes of messages have room, with those under way: 64 MiB by default. */
  maxQueuedBytes?: number;
}

interface Waiting {
  readonly json: string;
  readonly bytes: number;
  readonly resolve: (result: ScheduleResult) => void;
  readonly reject: (error: unknown) => void;
}

const defaults: Required<BatcherOptions> = {
  maxMessages: 500,
  maxBytes: 1 << 20,
  linger: 5,
  maxInFlight: 2,
  maxQueued: 10_000,
  maxQueuedBytes: 64 << 20,
};
const mostMessages = 1000;

/** What a request has around its messages; each but the first has a comma before it. */
const envelopeBytes = '{"messages":[]}'.length;

/**
 * Schedules messages in batches, in the background: `add` returns a promise for each message's own result. Nothing is
 * dropped: what the batches cannot do is an error of its message's promise.
 *
 *     const batcher = new Batcher(client);
 *     for await (const order of orders) {
 *       await batcher.ready; // There is room.
 *       batcher.add(timeoutOf(order)).catch((error) => log(order, error));
 *     }
 *     await batcher.close();
 */
export class Batcher {
  readonly #client: Client;
  readonly #options: Required<BatcherOptions>;
  /** Messages that have room, and those outside: the first come first. */
  readonly #queue: Waiting[] = [];
  readonly #outside: Waiting[] = [];
  /** Messages and bytes that have room, with those under way. */
  #used = { messages: 0, bytes: 0 };
  #queueBytes = 0;
  readonly #inFlight = new Set<Promise<void>>();
  #timer: NodeJS.Timeout | undefined;
  /** Send what there is, though no batch is full. */
  #mustSend = false;
  #isClosed = false;
  #room: { promise: Promise<void>; open: () => void } | undefined;

  constructor(client: Client, options: BatcherOptions = {}) {
    this.#client = client;
    this.#options = { ...defaults, ...options };
    for (const [name, value] of Object.entries(this.#options)) {
      if (!(value >= (name === "linger" ? 0 : 1))) {
        throw invalid(name, value, name === "linger" ? "0 ms or more" : "1 or more");
      }
    }
    if (this.#options.maxMessages > mostMessages) {
      throw invalid("maxMessages", this.#options.maxMessages, `at most ${mostMessages}`);
    }
  }

  /** Resolves when there is room for another message. Await it before `add`, so that no more wait than there is room for. */
  get ready(): Promise<void> {
    if (this.#outside.length === 0 && this.#hasRoom()) {
      return Promise.resolve();
    }
    if (this.#room === undefined) {
      let open = () => {};
      const promise = new Promise<void>((resolve) => {
        open = resolve;
      });
      this.#room = { promise, open };
    }
    return this.#room.promise;
  }

  /** How many messages have no result yet. */
  get size(): number {
    return this.#used.messages + this.#outside.length;
  }

  /** Adds a message, and returns its result when its batch was answered. If there is no room, it waits for that first. */
  add(message: Message): Promise<ScheduleResult> {
    return new Promise((resolve, reject) => {
      if (this.#isClosed) {
        throw invalid("batcher", "closed", "add messages before close");
      }
      const json = wireMessage(message);
      this.#outside.push({ json, bytes: Buffer.byteLength(json), resolve, reject });
      this.#admit();
      this.#send();
    });
  }

  /** Sends what was added without waiting for more, and resolves when all of it has its result. */
  async flush(): Promise<void> {
    while (this.size > 0) {
      this.#mustSend = true; // Also for what comes in from outside meanwhile.
      this.#send();
      await Promise.race(this.#inFlight);
    }
  }

  /** Refuses further messages, and resolves when all others have their result. */
  async close(): Promise<void> {
    this.#isClosed = true;
    await this.flush();
  }

  #hasRoom(): boolean {
    const { messages, bytes } = this.#used;
    return messages < this.#options.maxQueued && (messages === 0 || bytes < this.#options.maxQueuedBytes);
  }

  /** Lets in what there is room for. */
  #admit(): void {
    while (this.#hasRoom()) {
      const next = this.#outside.shift();
      if (next === undefined) {
        this.#room?.open();
        this.#room = undefined;
        return;
      }
      this.#queue.push(next);
      this.#queueBytes += next.bytes;
      this.#used.messages++;
      this.#used.bytes += next.bytes;
    }
  }

  /** How many messages the next batch has: as many as have room in it, from the first on. */
  #next(): number {
    let bytes = envelopeBytes;
    let count = 0;
    for (const m of this.#queue) {
      bytes += m.bytes + (count > 0 ? 1 : 0);
      if (count === this.#options.maxMessages || (count > 0 && bytes > this.#options.maxBytes)) {
        break;
      }
      count++;
    }
    return count;
  }

  /** Whether a batch is full. */
  #isFull(): boolean {
    const { maxMessages, maxBytes } = this.#options;
    return (
      this.#queue.length >= maxMessages ||
      envelopeBytes + this.#queueBytes + this.#queue.length - 1 > maxBytes ||
      !this.#hasRoom() // No further message comes in before one has left.
    );
  }

  /** Sends what is to be sent now, and sees to it that the rest is sent later. */
  #send(): void {
    while (
      this.#queue.length > 0 &&
      this.#inFlight.size < this.#options.maxInFlight &&
      (this.#mustSend || this.#isFull())
    ) {
      const batch = this.#queue.splice(0, this.#next());
      this.#queueBytes -= batch.reduce((sum, m) => sum + m.bytes, 0);
      const sending: Promise<void> = this.#deliver(batch).then(() => {
        this.#inFlight.delete(sending);
        this.#used.messages -= batch.length;
        this.#used.bytes -= batch.reduce((sum, m) => sum + m.bytes, 0);
        this.#admit();
        this.#send();
      });
      this.#inFlight.add(sending);
    }
    if (this.#queue.length === 0) {
      this.#mustSend = false;
      clearTimeout(this.#timer);
      this.#timer = undefined;
    } else if (!this.#mustSend && this.#timer === undefined) {
      this.#timer = setTimeout(() => {
        this.#timer = undefined;
        this.#mustSend = true;
        this.#send();
      }, this.#options.linger);
    }
  }

  /** Schedules a batch, and tells each message its result. It never rejects. */
  async #deliver(batch: readonly Waiting[]): Promise<void> {
    let results: readonly BatchItem[];
    try {
      results = await this.#client.scheduleEncoded(batch.map((m) => m.json));
    } catch (error) {
      for (const m of batch) {
        m.reject(error);
      }
      return;
    }
    for (const [i, m] of batch.entries()) {
      const result = results[i];
      if (result instanceof DelaybridgeError || result === undefined) {
        m.reject(result);
      } else {
        m.resolve(result);
      }
    }
  }
}
