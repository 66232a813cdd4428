import { randomBytes } from "node:crypto";
import { invalid } from "./errors.js";
import type { Late, Message, Ref } from "./message.js";
import { durationMs } from "./time.js";

// The limits of messages, for those who store them without a bridge that checks: the outbox and the fake.

const mostName = 255;
const mostHeaders = 64;
const mostTags = 8;
const mostTag = 64;
export const defaultMaxSize = 960 << 10;

// biome-ignore lint/suspicious/noControlCharactersInRegex: They are what it looks for.
const control = /[\x00-\x1f\x7f-\x9f]/;
// biome-ignore lint/suspicious/noControlCharactersInRegex: As above, without the tab.
const controlInValue = /[\x00-\x08\x0a-\x1f\x7f-\x9f]/;
const unprintable = /[^\p{L}\p{M}\p{N}\p{P}\p{S}]/u;

const isText = (value: string, controls = control): boolean =>
  value.isWellFormed() && !controls.test(value) && value === value.trim();

function checkLength(field: string, value: string, least: number, most: number): void {
  const bytes = Buffer.byteLength(value);
  if (bytes < least || bytes > most) {
    throw invalid(field, value, `${bytes} bytes, allowed are ${least} to ${most}`);
  }
}

/** Refuses an identity that no message can have. */
export function checkRef({ id, key = "" }: Ref): void {
  for (const [field, value, least] of [
    ["id", id, 1],
    ["key", key, 0],
  ] as const) {
    checkLength(field, value, least, mostName);
    if (!isText(value)) {
      throw invalid(field, value, "must be UTF-8 without control characters or outer spaces");
    }
  }
}

/** Refuses a name that no queue can have. */
export function checkQueue(queue: string): void {
  if (!/^[a-z0-9][a-z0-9_-]{0,62}$/.test(queue)) {
    throw invalid("queue", queue, "1 to 63 of a-z 0-9 _ -, the first a letter or a digit");
  }
}

function checkTopic(topic: string): void {
  checkLength("topic", topic, 1, mostName);
  if (!topic.isWellFormed() || control.test(topic)) {
    throw invalid("topic", topic, "must be UTF-8 without control characters");
  }
}

function checkHeaders(headers: Record<string, string>): void {
  const names = Object.keys(headers);
  if (names.length > mostHeaders) {
    throw invalid("header", `${names.length} headers`, `allowed are ${mostHeaders}`);
  }
  for (const name of names) {
    checkLength("header", name, 1, mostName);
    if (!/^[!-9;-~]+$/.test(name)) {
      throw invalid("header", name, "a name is printable ASCII without colon and space");
    }
    if (/^(delay|nats)-/i.test(name) || name === "CC" || name === "BCC") {
      throw invalid("header", name, "delay-*, nats-*, CC and BCC are reserved");
    }
    if (!isText(headers[name] ?? "", controlInValue)) {
      throw invalid("header", name, "its value must be UTF-8 without control characters or outer spaces");
    }
  }
}

/** The tags as consumers get them: sorted, and each once. */
export function sortedTags(tags: readonly string[] = []): string[] {
  const all = [...new Set(tags)].sort((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)));
  if (all.length > mostTags) {
    throw invalid("tag", `${all.length} tags`, `allowed are ${mostTags}`);
  }
  for (const tag of all) {
    checkLength("tag", tag, 1, mostTag);
    if (!tag.isWellFormed() || tag.includes(",") || unprintable.test(tag)) {
      throw invalid("tag", tag, "must be printable UTF-8 without spaces and commas");
    }
  }
  return all;
}

/** A duration as the bridge stores it, such as 1h0m0s, 1.5s or 250ms. */
function storedDuration(ms: number): string {
  if (ms === 0) {
    return "0s";
  }
  if (ms < 1000) {
    return `${ms}ms`;
  }
  const hours = Math.floor(ms / 3_600_000);
  const minutes = Math.floor((ms % 3_600_000) / 60_000);
  const rest = `${(ms % 60_000) / 1000}s`;
  return hours > 0 ? `${hours}h${minutes}m${rest}` : minutes > 0 ? `${minutes}m${rest}` : rest;
}

function lateHeader(late: Late): string {
  const ms = late.after === undefined ? 0 : durationMs("late", late.after);
  if (late.then !== "publish" && late.then !== "dead" && late.then !== "drop") {
    throw invalid("late", late.then, "allowed are publish, dead and drop");
  }
  if (late.then !== "publish" && ms < 1) {
    throw invalid("late", late.after ?? 0, "allowed are 1 ms and more");
  }
  return `${late.then} ${storedDuration(ms)}`;
}

/** A message as it is stored. */
export interface Stored {
  id: string;
  key: string;
  topic: string;
  /** The message's own, and those of its tags and of how late it may be. */
  headers: Record<string, string>;
  body: Uint8Array;
}

/** Checks a message, and gives it an id if it has none. */
export function store(m: Message, maxSize: number): Stored {
  const { id = ulid(), key = "", topic, headers: own = {}, tags, late } = m;
  const sorted = sortedTags(tags);
  const headers = {
    ...own,
    ...(sorted.length > 0 ? { "delay-tags": sorted.join(",") } : {}),
    ...(late === undefined ? {} : { "delay-late": lateHeader(late) }),
  };
  checkRef({ id, key });
  checkTopic(topic);
  checkHeaders(own);
  if (typeof m.body === "string" && !m.body.isWellFormed()) {
    throw invalid("body", "text", "it must have no lone surrogates");
  }
  const body = typeof m.body === "string" ? Buffer.from(m.body) : (m.body ?? new Uint8Array());
  const size = [id, key, topic, ...Object.entries(headers).flat()].reduce(
    (sum, s) => sum + Buffer.byteLength(s),
    body.length,
  );
  if (size > maxSize) {
    throw invalid(
      "body",
      `${body.length} bytes`,
      `id, key, topic, headers and body have ${size} bytes together, allowed are ${maxSize}`,
    );
  }
  return { id, key, topic, headers, body };
}

const base32 = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";

/** A new id: 10 letters of time and 16 of chance. */
export function ulid(now = Date.now()): string {
  const letters: string[] = [];
  for (let rest = now, i = 0; i < 10; i++, rest = Math.floor(rest / 32)) {
    letters.unshift(base32.charAt(rest % 32));
  }
  return letters.join("") + Array.from(randomBytes(16), (byte) => base32.charAt(byte % 32)).join("");
}
