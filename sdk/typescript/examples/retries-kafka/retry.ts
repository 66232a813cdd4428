// Has messages that fail delivered again, later, and gives up after a limit. The headers and ids are those of the Go package
// delay/retry, so consumers in both languages may share a topic.
import { type Client, KeyReusedError, type Message } from "delaybridge";

/** When and how often a message is delivered again. */
export interface Policy {
  /** How often. */
  limit: number;
  /** How long before the n-th time, from 1 on, in milliseconds. */
  delay: (n: number) => number;
  /** What was delivered again so often, and failed, goes there. */
  deadTopic: string;
}

/** What a consumer has got. */
export interface Delivery {
  /** The broker delivers no other message under this name: topic, partition and offset. */
  name: string;
  topic: string;
  key: string;
  headers: Record<string, string>;
  body: Uint8Array;
}

/** Delivers messages again by a bridge whose queue publishes to the broker that they come from. */
export class Retrier {
  constructor(
    readonly client: Client,
    readonly policy: Policy,
  ) {}

  /**
   * Has a message handled; if that fails, it is delivered again, or becomes a dead letter. Commit its offset if this resolves, and
   * not before. It rejects if no bridge takes the message.
   */
  async handle(delivery: Delivery, handler: (delivery: Delivery) => Promise<void>): Promise<void> {
    try {
      await handler(delivery);
    } catch (cause) {
      await this.#hand(repetition(delivery, cause, this.policy));
    }
  }

  /** Schedules a message once, however often its delivery comes: its id names the call, which Redis remembers for a day. */
  async #hand(message: Message & { id: string }): Promise<void> {
    try {
      await this.client.schedule(message, { idempotencyKey: message.id });
    } catch (error) {
      if (!(error instanceof KeyReusedError)) throw error; // It is: the delivery came before, and failed for another reason.
    }
  }
}

/** What is to be published in the place of a message that has failed. */
export function repetition(d: Delivery, cause: unknown, policy: Policy): Message & { id: string } {
  const origin = d.headers["retry-origin"] ?? d.name;
  const attempts = Number(d.headers["retry-attempt"] ?? 0);
  const own = Object.entries(d.headers).filter(([name]) => !/^delay-/i.test(name)); // The bridge gives these.
  const headers = { ...Object.fromEntries(own), "retry-origin": origin, "retry-error": printable(cause) };
  const same = { key: d.key, body: d.body, conflict: "keep" as const };
  if (attempts >= policy.limit) {
    return {
      ...same,
      id: `${origin}/dead`,
      topic: policy.deadTopic,
      due: 0,
      headers: { ...headers, "retry-topic": d.topic },
    };
  }
  const n = attempts + 1;
  return {
    ...same,
    id: `${origin}/retry/${n}`,
    topic: d.topic,
    due: policy.delay(n),
    headers: { ...headers, "retry-attempt": String(n) },
  };
}

/** A reason as a header may have it. */
function printable(cause: unknown): string {
  const text = cause instanceof Error ? cause.message : String(cause);
  return [...text.replace(/\p{Cc}/gu, " ").trim()].slice(0, 256).join("");
}
