/**
 * Tests producers without a server: a bridge in memory with a clock that the test moves. It needs no test framework.
 *
 * @packageDocumentation
 */
import { randomBytes } from "node:crypto";
import { Client, type ClientOptions, type Fetch } from "./client.js";
import type { Clock } from "./clock.js";
import { type Code, DelaybridgeError, invalid } from "./errors.js";
import { checkQueue, checkRef, defaultMaxSize, type Stored, sortedTags, store, ulid } from "./limits.js";
import { bodyText, type Conflict, type Late, type Message } from "./message.js";
import { spreadMs } from "./spread.js";
import { type Due, type Duration, dueMs, durationMs, stamp } from "./time.js";

/** What a fake bridge is made of. */
export interface FakeOptions {
  /** The clock's first time; now by default. */
  start?: Date;
  /** The queues that there are; every one by default. */
  queues?: readonly string[];
}

/** A message that waits, or is in the dead letters. */
export interface Waiting {
  readonly queue: string;
  readonly id: string;
  readonly key: string;
  readonly topic: string;
  readonly dueAt: Date;
  readonly body: Uint8Array;
  /** The body as text; empty if it is none. */
  readonly text: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly tags: readonly string[];
  /** Why it is in the dead letters. */
  readonly reason?: string;
}

/** A message as a consumer gets it: its headers are its own, and those that the bridge adds, such as delay-id. */
export interface Published extends Omit<Waiting, "reason"> {
  /** When it was published. */
  readonly at: Date;
}

/** Consumes a message. Until it has ended, the message is in flight. */
export type Handler = (message: Published) => void | Promise<void>;

/** What a request comes to instead of an answer: nobody listens, or it is done and the answer is lost. */
export type Fault = "refused" | "lost";

/** A clock that does not wait: a sleep moves it. For the retries of a client, whose waits no test should feel. */
export class InstantClock implements Clock {
  #ms: number;

  constructor(start = new Date()) {
    this.#ms = start.getTime();
  }

  now(): number {
    return this.#ms;
  }

  async sleep(ms: number): Promise<void> {
    this.#ms += ms;
  }
}

interface Entry extends Stored {
  readonly queue: string;
  readonly own: Record<string, string>;
  readonly tags: readonly string[];
  readonly late: Late | undefined;
  readonly uid: string;
  readonly scheduledMs: number;
  /** When the first of the messages was accepted that have replaced one another with a max_wait. */
  readonly firstMs: number | undefined;
  dueMs: number;
  state: "scheduled" | "in_flight" | "dead";
  reason: string;
  diedMs: number;
}

interface Reply {
  readonly status: number;
  readonly body: Json;
  readonly isReplayed?: boolean;
}

type Json = Record<string, unknown>;

const statuses: Partial<Record<Code, number>> = {
  invalid: 400,
  unauthorized: 401,
  forbidden: 403,
  read_only: 403,
  not_found: 404,
  duplicate: 409,
  too_late: 409,
  key_in_use: 409,
  key_reused: 422,
  rate_limited: 429,
  unavailable: 503,
  no_layout: 503,
  unknown: 504,
  full: 507,
};
/** The errors of a request that has changed nothing, and may be corrected under its Idempotency-Key. */
const untold = new Set<unknown>(["invalid", "forbidden", "full", "no_layout", "unavailable"]);
const keyMs = 24 * 3_600_000;
const members = new Set("in at spread id key topic headers body body_base64 tags late conflict max_wait".split(" "));
const mostDelayMs = 10 * 366 * 86_400_000;
const unitsMs: Record<string, number> = {
  ns: 1e-6,
  us: 1e-3,
  µs: 1e-3,
  ms: 1,
  s: 1000,
  m: 60_000,
  h: 3_600_000,
  d: 86_400_000,
  w: 7 * 86_400_000,
};

/** Reads a duration of the API. */
function wireMs(field: string, text: unknown): number {
  if (typeof text === "string" && /^(0|(\d+(\.\d+)?(ns|us|µs|ms|s|m|h|d|w))+)$/.test(text)) {
    const parts = [...text.matchAll(/(\d+(?:\.\d+)?)(ns|us|µs|ms|s|m|h|d|w)/g)];
    return parts.reduce((sum, [, number, unit = ""]) => sum + Number(number) * (unitsMs[unit] ?? 0), 0);
  }
  throw invalid(field, String(text), "a duration such as 500ms, 30m or 2d");
}

/** The error as the API answers it. */
function problem(error: DelaybridgeError, more: Json = {}): Reply {
  const status = statuses[error.code] ?? 500;
  const { code, field, message: detail } = error;
  return {
    status,
    body: { title: "Problem", status, code, detail, ...(field === undefined ? {} : { field }), ...more },
  };
}

/**
 * A bridge in memory, with a broker and a clock. Its clients are real ones, whose requests it answers as the API does,
 * with the same limits and errors. The clock stands still until the test moves it.
 *
 *     const bridge = new FakeBridge();
 *     const shop = new Shop(bridge.client("orders"));
 *     await shop.placeOrder(42);
 *     bridge.requireScheduled("order.timeout", "PT30M");
 *     await bridge.advance("PT30M");
 *     const message = bridge.requirePublished("order.timeout");
 *
 * It does not simulate attempts, duplicates, histories, tokens and several bridges.
 */
export class FakeBridge {
  /** Answers the requests of clients: the option `fetch` of a Client. */
  readonly fetch: Fetch = (url, init) => this.#fetch(url, init);
  readonly #queues: readonly string[] | undefined;
  readonly #entries = new Map<string, Entry>();
  readonly #published: Published[] = [];
  readonly #handlers = new Map<string, Handler>();
  readonly #refused = new Map<string, string>();
  readonly #records = new Map<string, { fingerprint: string; reply: Reply; untilMs: number }>();
  #failures: (Code | Fault)[] = [];
  #nowMs: number;
  #isPaused = false;

  constructor(options: FakeOptions = {}) {
    this.#nowMs = (options.start ?? new Date()).getTime();
    this.#queues = options.queues;
  }

  /** A client of a queue here. Its waits between retries take no time. */
  client(queue: string, options: Partial<Omit<ClientOptions, "queue" | "fetch">> = {}): Client {
    return new Client({ servers: "http://fake", clock: new InstantClock(), ...options, queue, fetch: this.fetch });
  }

  /** The clock's time. */
  now(): Date {
    return new Date(this.#nowMs);
  }

  /** Moves the clock. Each message that becomes due is published at its due time, in due order, and returned. 0 publishes what is due. */
  async advance(by: Duration): Promise<Published[]> {
    const endMs = this.#nowMs + durationMs("by", by);
    const before = this.#published.length;
    for (;;) {
      const next = this.#isPaused ? undefined : this.#inOrder("scheduled").find((e) => e.dueMs <= endMs);
      if (next === undefined) {
        break;
      }
      this.#nowMs = Math.max(this.#nowMs, next.dueMs);
      await this.#settle(next);
    }
    this.#nowMs = Math.max(this.#nowMs, endMs);
    return this.#published.slice(before);
  }

  /** Calls the handler for each message that is published to the topic. It may schedule more; a cancel of its own message comes too late. */
  handle(topic: string, handler: Handler): void {
    this.#handlers.set(topic, handler);
  }

  /** Has the broker refuse all messages to the topic: when they are due, they go to the dead letters with that reason. */
  refuse(topic: string, reason: string): void {
    this.#refused.set(topic, reason);
  }

  /** Stops publishing, as an outage does, while the clock may go on. */
  pause(): void {
    this.#isPaused = true;
  }

  /** Ends a pause. The next `advance` publishes what has become due, or does what the messages' `late` says. */
  resume(): void {
    this.#isPaused = false;
  }

  /** Has the next requests fail: with an answer of that code, or by a fault of the network. A client may well try again. */
  fail(what: Code | Fault, times = 1): void {
    this.#failures.push(...new Array<Code | Fault>(times).fill(what));
  }

  /** The messages that wait, in due order, of a topic or of all. */
  scheduled(topic?: string): Waiting[] {
    return this.#list("scheduled", topic);
  }

  /** The dead letters, of a topic or of all. */
  dead(topic?: string): Waiting[] {
    return this.#list("dead", topic);
  }

  /** What was published so far, in order, to a topic or to all. */
  published(topic?: string): Published[] {
    return this.#published.filter((p) => topic === undefined || p.topic === topic);
  }

  /** The first message that waits for the topic, and is due then, give or take a second, if that is given. Throws if there is none. */
  requireScheduled(topic: string, due?: Due): Waiting {
    const at = due === undefined ? undefined : dueMs(due);
    const ms = at === undefined ? 0 : at.ms + (at.isDelay ? this.#nowMs : 0);
    const found = this.scheduled(topic).find((m) => at === undefined || Math.abs(m.dueAt.getTime() - ms) <= 1000);
    if (found === undefined) {
      const when = at === undefined ? "" : `, due ${stamp(ms)}`;
      throw new Error(`no message to ${topic} waits${when}; it is ${stamp(this.#nowMs)}; ${this.#tell()}`);
    }
    return found;
  }

  /** The last message that was published to the topic. Throws if there is none. */
  requirePublished(topic: string): Published {
    const found = this.published(topic).at(-1);
    if (found === undefined) {
      throw new Error(`nothing was published to ${topic}; it is ${stamp(this.#nowMs)}; ${this.#tell()}`);
    }
    return found;
  }

  /** Throws if a message waits, was published or is in the dead letters, of a topic or of all. */
  requireNothing(topic?: string): void {
    if (this.scheduled(topic).length + this.published(topic).length + this.dead(topic).length > 0) {
      throw new Error(`there should be no message${topic === undefined ? "" : ` to ${topic}`}; ${this.#tell()}`);
    }
  }

  #tell(): string {
    const line = (m: Waiting | Published) =>
      `\n  ${m.topic}  ${m.key === "" ? m.id : `${m.id} (key ${m.key})`}  due ${m.dueAt.toISOString()}`;
    const list = (what: string, all: (Waiting | Published)[]) =>
      all.length === 0 ? `nothing ${what}` : `${what}:${all.map(line).join("")}`;
    return [
      list("waits", this.scheduled()),
      list("was published", this.published()),
      list("is dead", this.dead()),
    ].join("; ");
  }

  #inOrder(state: Entry["state"]): Entry[] {
    const all = [...this.#entries.values()].filter((e) => e.state === state);
    return all.sort((a, b) => a.dueMs - b.dueMs || Buffer.compare(Buffer.from(a.id), Buffer.from(b.id)));
  }

  #list(state: Entry["state"], topic: string | undefined): Waiting[] {
    return this.#inOrder(state)
      .filter((e) => topic === undefined || e.topic === topic)
      .map((e) => ({
        queue: e.queue,
        id: e.id,
        key: e.key,
        topic: e.topic,
        dueAt: new Date(e.dueMs),
        body: e.body,
        text: bodyText(e.body) ?? "",
        headers: e.own,
        tags: e.tags,
        ...(e.reason === "" ? {} : { reason: e.reason }),
      }));
  }

  /** Publishes a message, unless it is too late or refused. */
  async #settle(e: Entry): Promise<void> {
    const { late } = e;
    if (late !== undefined && late.then !== "publish" && this.#nowMs - e.dueMs > durationMs("late", late.after ?? 0)) {
      if (late.then === "drop") {
        this.#entries.delete(member(e));
      } else {
        this.#bury(e, "late");
      }
      return;
    }
    const reason = this.#refused.get(e.topic);
    if (reason !== undefined) {
      this.#bury(e, reason);
      return;
    }
    const published: Published = {
      queue: e.queue,
      id: e.id,
      key: e.key,
      topic: e.topic,
      dueAt: new Date(e.dueMs),
      at: this.now(),
      body: e.body,
      text: bodyText(e.body) ?? "",
      tags: e.tags,
      headers: {
        ...e.headers,
        ...(e.firstMs === undefined ? {} : { "delay-first-at": stamp(e.firstMs) }),
        "delay-id": e.id,
        "delay-queue": e.queue,
        "delay-due-at": stamp(e.dueMs),
        "delay-scheduled-at": stamp(e.scheduledMs),
        "delay-attempt": "1",
        "delay-uid": e.uid,
      },
    };
    this.#published.push(published);
    e.state = "in_flight";
    try {
      await this.#handlers.get(e.topic)?.(published);
    } finally {
      this.#entries.delete(member(e));
    }
  }

  #bury(e: Entry, reason: string): void {
    e.state = "dead";
    e.reason = reason;
    e.diedMs = this.#nowMs;
  }

  async #fetch(url: string, init: RequestInit): Promise<Response> {
    init.signal?.throwIfAborted();
    const failure = this.#failures.shift();
    if (failure === "refused") {
      throw new TypeError("fetch failed", { cause: Object.assign(new Error("refused"), { syscall: "connect" }) });
    }
    const isAnswer = failure !== undefined && failure !== "lost";
    const reply = isAnswer
      ? problem(new DelaybridgeError(failure, "as the test asked for"))
      : this.#answer(new URL(url), init);
    if (failure === "lost") {
      throw new TypeError("fetch failed", { cause: new Error("the answer is lost") });
    }
    const headers = new Headers({
      "Content-Type": reply.status < 400 ? "application/json" : "application/problem+json",
    });
    if (reply.isReplayed) {
      headers.set("Idempotent-Replayed", "true");
    }
    if (reply.status === 429 || reply.status === 503) {
      headers.set("Retry-After", "1");
    }
    return new Response(JSON.stringify(reply.body), { status: reply.status, headers });
  }

  /** Answers a request. */
  #answer(url: URL, init: RequestInit): Reply {
    try {
      return this.#route(url, init);
    } catch (error) {
      if (error instanceof DelaybridgeError) {
        return problem(error);
      }
      throw error;
    }
  }

  #route({ pathname, searchParams }: URL, init: RequestInit): Reply {
    const path = /^\/api\/v1\/queues\/([^/]+)\/messages(:batch)?(?:\/(.+?)(:reschedule|:publish-now)?)?$/.exec(
      pathname,
    );
    const [, queue = "", batch, escapedId, verb] = path ?? [];
    if (path === null || (this.#queues !== undefined && !this.#queues.includes(queue))) {
      throw new DelaybridgeError("not_found", "there is no such queue or call");
    }
    checkQueue(queue);
    const body = init.body === undefined || init.body === null ? {} : (JSON.parse(String(init.body)) as Json);
    const key = searchParams.get("key") ?? "";
    const call = `${init.method} ${escapedId === undefined ? (batch ?? "") : (verb ?? "id")}`;
    const id = this.#idOf(escapedId, searchParams);
    switch (call) {
      case "POST ":
        return this.#once(queue, call, init, body, () => this.#schedule(queue, body));
      case "POST :batch":
        return this.#once(queue, call, init, body, () => this.#scheduleBatch(queue, body));
      case "DELETE ":
        return this.#cancelAll(queue, searchParams.get("tag") ?? "", key);
      case "GET id":
        return this.#get(this.#find(queue, id, key), searchParams.has("body"));
      case "DELETE id":
        this.#entries.delete(member(this.#free(queue, id, key)));
        return { status: 200, body: { status: "cancelled", maybe_published: false } };
      case "POST :reschedule":
        return this.#reschedule(this.#free(queue, id, key), this.#due(body, key, id).ms);
      case "POST :publish-now":
        return this.#reschedule(this.#free(queue, id, key), this.#nowMs);
      default:
        throw new DelaybridgeError("not_found", "there is no such call");
    }
  }

  #idOf(escaped: string | undefined, query: URLSearchParams): string {
    const dots = query.get("dots");
    return escaped === "-" && dots !== null ? ".".repeat(Number(dots)) : decodeURIComponent(escaped ?? "");
  }

  /** Answers a request under an Idempotency-Key as the first one was, or has it done. */
  #once(queue: string, call: string, init: RequestInit, body: Json, schedule: () => Reply): Reply {
    const key = new Headers(init.headers).get("Idempotency-Key");
    if (key === null) {
      return schedule();
    }
    const name = `${queue} ${key}`;
    const fingerprint = call + canonical(body);
    const record = this.#records.get(name);
    if (record !== undefined && record.untilMs > this.#nowMs) {
      if (record.fingerprint !== fingerprint) {
        throw new DelaybridgeError("key_reused", "the Idempotency-Key was used for another request", {
          field: "Idempotency-Key",
        });
      }
      return { ...record.reply, isReplayed: true };
    }
    const reply = schedule();
    const { results = [{ error: reply.status >= 400 ? reply.body : undefined }] } = reply.body as {
      results?: { error?: Json }[];
    };
    if (results.some(({ error }) => error === undefined || !untold.has(error.code))) {
      this.#records.set(name, { fingerprint, reply, untilMs: this.#nowMs + keyMs });
    }
    return reply;
  }

  #schedule(queue: string, body: Json): Reply {
    const { error, ...item } = this.#scheduleOne(queue, body);
    if (error === undefined) {
      return { status: 201, body: item };
    }
    const { key: _, ...more } = item;
    return problem(error, more);
  }

  #scheduleBatch(queue: string, { messages }: Json): Reply {
    if (!Array.isArray(messages) || messages.length < 1 || messages.length > 1000) {
      throw new DelaybridgeError("invalid", "messages: 1 to 1000", { field: "messages" });
    }
    const results = messages.map((m: Json) => {
      const { error, ...item } = this.#scheduleOne(queue, m);
      if (error === undefined) {
        return item;
      }
      const { code, message: detail, field } = error;
      return { ...item, error: { code, detail, ...(field === undefined ? {} : { field }) } };
    });
    return { status: 200, body: { results } };
  }

  #scheduleOne(queue: string, m: Json): Json & { error?: DelaybridgeError } {
    const id = typeof m.id === "string" && m.id !== "" ? m.id : ulid(this.#nowMs);
    const key = typeof m.key === "string" ? m.key : "";
    try {
      const { entry, status } = this.#accept(queue, { ...m, id, key });
      return { id, key, due_at: stamp(entry.dueMs), status };
    } catch (error) {
      if (!(error instanceof DelaybridgeError)) {
        throw error;
      }
      return { id, key, ...(error.dueAt === undefined ? {} : { due_at: error.dueAt.toISOString() }), error };
    }
  }

  /** Accepts a message, or finds the one that holds its identity. */
  #accept(queue: string, m: Json & { id: string; key: string }): { entry: Entry; status: string } {
    const unknown = Object.keys(m).find((name) => !members.has(name));
    if (unknown !== undefined) {
      throw new DelaybridgeError("invalid", `${unknown}: no such member`, { field: unknown });
    }
    const conflict = (m.conflict ?? "reject") as Conflict;
    const entry = this.#entry(queue, m, conflict);
    const there = this.#entries.get(member(entry));
    if (there === undefined || (conflict === "replace" && there.state !== "in_flight")) {
      this.#entries.set(member(entry), entry);
      return { entry, status: there === undefined ? "created" : "replaced" };
    }
    if (conflict === "replace") {
      throw new DelaybridgeError("too_late", "too late, message in flight");
    }
    if (conflict === "keep" && there.state !== "dead") {
      return { entry: there, status: "existing" };
    }
    throw new DelaybridgeError("duplicate", "duplicate message", { dueAt: new Date(there.dueMs) });
  }

  #entry(queue: string, m: Json & { id: string; key: string }, conflict: Conflict): Entry {
    const { id, key, body, body_base64: base64, late: sent } = m;
    const late: Late | undefined =
      sent === undefined
        ? undefined
        : {
            then: (sent as Json).then as Late["then"],
            ...((sent as Json).after === undefined ? {} : { after: wireMs("late.after", (sent as Json).after) }),
          };
    const due = this.#due(m, key, id);
    const tags = (m.tags ?? []) as string[];
    const own = (m.headers ?? {}) as Record<string, string>;
    const stored = asSent(() =>
      store(
        {
          id,
          key,
          topic: String(m.topic ?? ""),
          body: typeof base64 === "string" ? Buffer.from(base64, "base64") : String(body ?? ""),
          headers: own,
          tags,
          ...(late === undefined ? {} : { late }),
          due: 0,
        } satisfies Message,
        defaultMaxSize,
      ),
    );
    const there = this.#entries.get(member({ queue, id, key }));
    const bound = m.max_wait === undefined ? undefined : wireMs("max_wait", m.max_wait);
    if (bound !== undefined && (m.in === undefined || conflict !== "replace" || bound < due.delay)) {
      throw new DelaybridgeError("invalid", "max_wait: with a delay that is not longer, and replace", {
        field: "max_wait",
      });
    }
    const firstMs = bound === undefined ? undefined : (there?.firstMs ?? this.#nowMs);
    return {
      ...stored,
      queue,
      own,
      tags: sortedTags(tags),
      late,
      uid: randomBytes(8).toString("hex"),
      scheduledMs: this.#nowMs,
      firstMs,
      dueMs: bound === undefined || firstMs === undefined ? due.ms : Math.min(due.ms, firstMs + bound),
      state: "scheduled",
      reason: "",
      diedMs: 0,
    };
  }

  /** The due time of a request, and its delay. */
  #due({ in: delay, at, spread }: Json, key: string, id: string): { ms: number; delay: number } {
    if ((delay === undefined) === (at === undefined)) {
      throw new DelaybridgeError("invalid", "give in or at, and not both", { field: "in" });
    }
    const share = spread === undefined ? 0 : spreadMs(key, id, Math.floor(wireMs("spread", spread)));
    if (delay !== undefined) {
      const ms = Math.ceil(wireMs("in", delay));
      if (ms > mostDelayMs) {
        throw new DelaybridgeError("invalid", "in: at most 10 years", { field: "in" });
      }
      return { ms: this.#nowMs + ms + share, delay: ms };
    }
    const { isDelay, ms } = typeof at === "string" ? dueMs(at) : { isDelay: true, ms: 0 };
    if (isDelay || ms < 0 || ms > this.#nowMs + mostDelayMs) {
      throw new DelaybridgeError("invalid", "at: RFC 3339, from 1970 to 10 years from now", { field: "at" });
    }
    return { ms: ms + share, delay: 0 };
  }

  /** The message of that identity. */
  #find(queue: string, id: string, key: string): Entry {
    checkRef({ id, key });
    const found = this.#entries.get(member({ queue, id, key }));
    if (found !== undefined) {
      return found;
    }
    const other = key === "" ? [...this.#entries.values()].find((e) => e.queue === queue && e.id === id) : undefined;
    if (other !== undefined) {
      throw new DelaybridgeError("invalid", `a message of the id is there under the key ${other.key}`, {
        field: "key",
      });
    }
    throw new DelaybridgeError("not_found", "message not found");
  }

  /** The message of that identity, unless it is being published. */
  #free(queue: string, id: string, key: string): Entry {
    const found = this.#find(queue, id, key);
    if (found.state === "in_flight") {
      throw new DelaybridgeError("too_late", "too late, message in flight");
    }
    return found;
  }

  #reschedule(e: Entry, ms: number): Reply {
    e.dueMs = ms;
    e.state = "scheduled";
    e.reason = "";
    return { status: 200, body: { status: "rescheduled", maybe_published: false } };
  }

  #get(e: Entry, withBody: boolean): Reply {
    const text = bodyText(e.body);
    const death = { state: "dead", at: stamp(e.diedMs), topic: e.topic, attempt: 1, reason: e.reason };
    return {
      status: 200,
      body: {
        ...{ id: e.id, key: e.key, queue: e.queue, topic: e.topic, state: e.state },
        ...{ due_at: stamp(e.dueMs), scheduled_at: stamp(e.scheduledMs), attempt: 1, maybe_published: false },
        ...{ tags: e.tags, headers: e.own },
        ...(e.state === "dead" ? { reason: e.reason, end: death } : {}),
        ...(!withBody
          ? {}
          : text !== undefined
            ? { body: text }
            : { body_base64: Buffer.from(e.body).toString("base64") }),
      },
    };
  }

  #cancelAll(queue: string, tag: string, key: string): Reply {
    if (tag === "" && key === "") {
      throw new DelaybridgeError("invalid", "filter: a tag or a key", { field: "filter" });
    }
    const matches = [...this.#entries.values()].filter(
      (e) => e.queue === queue && (tag === "" || e.tags.includes(tag)) && (key === "" || e.key === key),
    );
    const free = matches.filter((e) => e.state !== "in_flight");
    for (const e of free) {
      this.#entries.delete(member(e));
    }
    const body = { done: free.length, maybe_published: 0, too_late: matches.length - free.length, more: false };
    return { status: 200, body };
  }
}

const member = ({ queue, key, id }: { queue: string; key: string; id: string }): string => `${queue}\0${key}\0${id}`;

/** JSON with the members in one order. */
function canonical(value: unknown): string {
  return JSON.stringify(value, (_, v: unknown) =>
    typeof v === "object" && v !== null && !Array.isArray(v)
      ? Object.fromEntries(Object.entries(v).sort(([a], [b]) => (a < b ? -1 : 1)))
      : v,
  );
}

/** Names the fields of errors as the API does. */
function asSent<T>(check: () => T): T {
  try {
    return check();
  } catch (error) {
    if (error instanceof DelaybridgeError && (error.field === "header" || error.field === "tag")) {
      throw new DelaybridgeError("invalid", error.message, { field: `${error.field}s` });
    }
    throw error;
  }
}
