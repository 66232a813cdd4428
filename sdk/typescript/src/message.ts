import { invalid } from "./errors.js";
import { type Due, type Duration, dueMs, stamp, wireDuration } from "./time.js";

/** What to do if a message of the identity exists: answer {@link DuplicateError}, keep that one, or replace it. */
export type Conflict = "reject" | "keep" | "replace";

/** How long after its due time a message may be published, and what happens to it after that. */
export interface Late {
  /** At least 1 ms; it has no meaning with `publish`. */
  after?: Duration;
  /** `publish` it however late, send it to the `dead` letters, or `drop` it, counted and logged. */
  then: "publish" | "dead" | "drop";
}

/** A message's identity. */
export interface Ref {
  id: string;
  key?: string;
}

/** A message, and when it is due. Id, key, topic, headers and body may have 960 KiB together, unless the queue says otherwise. */
export interface Message {
  /** Names the message within its key: 1 to 255 bytes of UTF-8 without control characters and outer spaces. The default is a new ULID. */
  id?: string;
  /** Messages of one key and topic are published in due order: 0 to 255 bytes, as the id. */
  key?: string;
  /** Where it is published: a Kafka topic, a RabbitMQ routing key, a NATS subject, a Redis stream, a queue of SQS, a topic of Pub/Sub, an endpoint of webhooks. */
  topic: string;
  /** The payload, published byte for byte; text as UTF-8. */
  body?: string | Uint8Array;
  /** Headers for the consumer: at most 64. Names of delay-*, nats-*, CC and BCC are reserved. */
  headers?: Record<string, string>;
  /** Labels by which related messages are found: at most 8, each of 1 to 64 bytes without spaces and commas. */
  tags?: readonly string[];
  /** At most 10 years from now; what is in the past is published at once. */
  due: Due;
  /** Adds up to so much to the due time, by a hash of id and key, so that a wave of messages does not come at once. */
  spread?: Duration;
  /** With a delay and `replace`: it is due at most so long after the first of the messages that replace one another. */
  maxWait?: Duration;
  /** The default is the queue's. */
  late?: Late;
  /** The default is `reject`. */
  conflict?: Conflict;
}

const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** The payload as text, or undefined if it is none. */
export function bodyText(body: Uint8Array): string | undefined {
  try {
    return utf8.decode(body);
  } catch {
    return undefined;
  }
}

/** The body of a message on the wire: text if it can be, otherwise base64. */
function wireBody(body: string | Uint8Array | undefined): { body?: string; body_base64?: string } {
  if (body === undefined || body.length === 0) {
    return {};
  }
  const text = typeof body === "string" ? body : bodyText(body);
  if (text !== undefined) {
    return { body: text };
  }
  const { buffer, byteOffset, byteLength } = body as Uint8Array;
  return { body_base64: Buffer.from(buffer, byteOffset, byteLength).toString("base64") };
}

/** Refuses text with half a surrogate pair, in the place of which another character would arrive. */
function wellFormed(field: string, text: string | undefined): string | undefined {
  if (text !== undefined && !text.isWellFormed()) {
    throw invalid(field, "text", "it must have no lone surrogates");
  }
  return text || undefined; // Empty is absent.
}

/** The due time on the wire. */
export function wireDue(due: Due, spread?: Duration): { in?: string; at?: string; spread?: string } {
  const { isDelay, ms } = dueMs(due);
  const when = isDelay ? { in: `${ms}ms` } : { at: stamp(ms) };
  return spread === undefined ? when : { ...when, spread: wireDuration("spread", spread) };
}

/** The message on the wire, as JSON. */
export function wireMessage(m: Message): string {
  const { late, maxWait } = m;
  return JSON.stringify({
    id: wellFormed("id", m.id),
    key: wellFormed("key", m.key),
    topic: wellFormed("topic", m.topic) ?? "",
    ...wireBody(typeof m.body === "string" ? wellFormed("body", m.body) : m.body),
    headers: m.headers !== undefined && Object.keys(m.headers).length > 0 ? m.headers : undefined,
    tags: m.tags?.length ? m.tags : undefined,
    ...wireDue(m.due, m.spread),
    max_wait: maxWait === undefined ? undefined : wireDuration("max_wait", maxWait),
    late:
      late === undefined
        ? undefined
        : { after: late.after === undefined ? undefined : wireDuration("late.after", late.after), then: late.then },
    conflict: m.conflict,
  });
}

/** What a call says of an identity: an id alone has no key. */
export const refOf = (ref: Ref | string): Ref => (typeof ref === "string" ? { id: ref } : ref);
