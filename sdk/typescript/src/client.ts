import { randomUUID } from "node:crypto";
import { setMaxListeners } from "node:events";
import { type Clock, realTime } from "./clock.js";
import { type DelaybridgeError, invalid } from "./errors.js";
import { checkQueue } from "./limits.js";
import { type Message, type Ref, refOf, wireDue, wireMessage } from "./message.js";
import { type Answer, type Attempt, type Body, type Call, make, problem, Servers } from "./retry.js";
import { type Due, type Duration, instant } from "./time.js";

/** The platform's fetch, or something of that form. */
export type Fetch = (url: string, init: RequestInit) => Promise<Response>;

/**
 * Gives the bearer token of a request. It is asked for each call, and again if a server does not know the token. A call
 * waits for it however long it takes, and fails with its error.
 */
export type TokenSource = () => string | Promise<string>;

/** What a client is made of. */
export interface ClientOptions {
  /** The addresses of bridges, such as `"http://bridge-1:8080"`. A client begins with one by chance. */
  servers: string | readonly string[];
  /** The queue of all calls. */
  queue: string;
  /** The bearer token, or what gives it. */
  token?: string | TokenSource;
  /** How long a call may take with all its requests, in milliseconds; 30,000 by default. */
  timeout?: number;
  /** How long one request of a call may take, in milliseconds; 5,000 by default. `cancelAll` has 10,000 more. */
  attemptTimeout?: number;
  /** What sends requests; the platform's fetch by default. That of undici takes a dispatcher, for other certificates or a proxy. */
  fetch?: Fetch;
  /** What retries wait by. Tests have one that they move. */
  clock?: Clock;
  /** Chance from 0 up to 1, for the first server and the waits. */
  random?: () => number;
}

/** What a single call may have. */
export interface CallOptions {
  /** Ends the call with the signal's reason. Whether it was done is unknown then. */
  signal?: AbortSignal;
  /** Instead of the client's. */
  timeout?: number;
  /** W3C Trace Context, which the bridge's spans and the message get. */
  traceparent?: string;
}

/** What a call that schedules may have. */
export interface ScheduleOptions extends CallOptions {
  /** Names the call for 24 h, in whichever process it is made: 1 to 255 printable ASCII characters. A new one by default. */
  idempotencyKey?: string;
}

/** What a schedule has done. */
export interface ScheduleResult {
  readonly id: string;
  readonly key: string;
  /** When the message is due that waits, by Redis' clock. */
  readonly dueAt?: Date;
  readonly status: "created" | "replaced" | "existing";
  /** Done, but not confirmed in time as the queue's durability asks. */
  readonly notDurable: boolean;
  /** The answer is that of an earlier request under the Idempotency-Key. */
  readonly replayed: boolean;
}

/** What a cancel or reschedule has done. */
export interface ChangeResult {
  readonly status: "cancelled" | "rescheduled";
  /** A copy may have been published before. */
  readonly maybePublished: boolean;
  /** Done, but not confirmed in time as the queue's durability asks. */
  readonly notDurable: boolean;
}

/** What `cancelAll` has done. Repeat it until all are 0, and `more` is false. */
export interface CancelCount {
  readonly done: number;
  /** Cancelled, but a copy of each may have been published before. */
  readonly maybePublished: number;
  /** In flight: they are being published, or will wait again soon. */
  readonly tooLate: number;
  /** The call has used up its time. */
  readonly more: boolean;
  readonly notDurable: boolean;
}

/** How a message has ended. */
export interface End {
  readonly state: "published" | "cancelled" | "dropped" | "purged" | "dead";
  readonly at?: Date;
  /** Where the broker has stored it, if it told. */
  readonly place?: string;
  readonly topic?: string;
  readonly attempt?: number;
  readonly reason?: string;
}

/** A message as it is now. */
export interface Info {
  readonly id: string;
  readonly key: string;
  readonly queue: string;
  readonly topic: string;
  /** The last four are known only if the queue keeps a history. */
  readonly state: "scheduled" | "parked" | "in_flight" | "dead" | "published" | "cancelled" | "dropped" | "purged";
  readonly dueAt?: Date;
  readonly scheduledAt?: Date;
  /** The number of the next attempt to publish it, or of the running one. */
  readonly attempt: number;
  /** A copy may be at the broker already. */
  readonly maybePublished: boolean;
  readonly tags: readonly string[];
  readonly headers: Readonly<Record<string, string>>;
  /** Why it is parked, dead, or has ended. */
  readonly reason?: string;
  /** The route for which it is parked. */
  readonly route?: string;
  /** The key with which the payload is encrypted. */
  readonly sealedBy?: string;
  /** How it ended; for a live message, how the previous one of its identity ended. */
  readonly end?: End;
  /** The payload, if it was asked for and may be shown. */
  readonly body?: Uint8Array;
}

/** A message of a batch: what was done, or why not. */
export type BatchItem = ScheduleResult | DelaybridgeError;

const defaultTimeout = 30_000;
const defaultAttemptTimeout = 5000;
/** For how much longer the server itself may work on a cancelAll. */
const cancelAllMs = 10_000;

/**
 * A client of a queue, over the HTTP API of bridges. It is safe for concurrent use, holds no connection but those of
 * fetch, which keeps them alive, and needs no close.
 *
 * Every call ends with its timeout. Until then it is made again, at the next server if there are several: after faults of
 * the network and answers that say that it may work later. A call that schedules has one Idempotency-Key for all its
 * requests, so it has one effect. Calls reject with a {@link DelaybridgeError}, with the reason of their signal, or with
 * the error of the token's source.
 */
export class Client {
  readonly queue: string;
  readonly #addresses: readonly string[];
  readonly #servers: Servers;
  readonly #token: TokenSource | undefined;
  readonly #timeout: number;
  readonly #attemptTimeout: number;
  readonly #fetch: Fetch;
  readonly #clock: Clock;
  readonly #random: () => number;

  constructor(options: ClientOptions) {
    const { servers, queue, token, clock = realTime, random = Math.random } = options;
    this.#addresses = (typeof servers === "string" ? [servers] : servers).map(addressOf);
    if (this.#addresses.length === 0) {
      throw invalid("servers", "", "at least one");
    }
    checkQueue(queue);
    this.queue = queue;
    this.#token = typeof token === "string" ? () => token : token;
    this.#timeout = positive("timeout", options.timeout ?? defaultTimeout);
    this.#attemptTimeout = positive("attemptTimeout", options.attemptTimeout ?? defaultAttemptTimeout);
    this.#fetch = options.fetch ?? ((url, init) => fetch(url, init));
    this.#clock = clock;
    this.#random = random;
    this.#servers = new Servers(this.#addresses.length, Math.floor(random() * this.#addresses.length));
  }

  /**
   * Schedules a message.
   *
   * Rejects with DuplicateError, TooLateError (under `replace`), InvalidError, FullError, NoLayoutError, UnavailableError,
   * UnknownError and what the token may not.
   */
  async schedule(message: Message, options: ScheduleOptions = {}): Promise<ScheduleResult> {
    const answer = await this.#schedule("schedule", "/messages", wireMessage(message), options);
    return scheduled(answer.body, answer.isReplayed);
  }

  /**
   * Schedules up to 1,000 messages in one request, each for itself: an item of the results, by index, is what was done or
   * the error of that message. It rejects if the whole request has failed.
   */
  async scheduleBatch(messages: readonly Message[], options: ScheduleOptions = {}): Promise<BatchItem[]> {
    return this.scheduleEncoded(
      messages.map((m) => wireMessage(m)),
      options,
    );
  }

  /** @internal `scheduleBatch` for messages that are JSON already. */
  async scheduleEncoded(messages: readonly string[], options: ScheduleOptions = {}): Promise<BatchItem[]> {
    if (messages.length === 0) {
      return [];
    }
    const body = `{"messages":[${messages.join(",")}]}`;
    const answer = await this.#schedule("schedule_batch", "/messages:batch", body, options);
    const results = Array.isArray(answer.body.results) ? (answer.body.results as Body[]) : [];
    return messages.map((_, i) => {
      const item = results[i] ?? { error: { code: "failed", detail: "the answer has no result for it" } };
      return item.error === undefined ? scheduled(item, answer.isReplayed) : itemError(item);
    });
  }

  /** Removes a message that waits or is in the dead letters, so that it is never published. Rejects with NotFoundError and TooLateError. */
  async cancel(ref: Ref | string, options: CallOptions = {}): Promise<ChangeResult> {
    return this.#change("cancel", "DELETE", ref, "", undefined, options);
  }

  /** Moves a message to another due time; a dead letter is put back. Rejects with NotFoundError and TooLateError. */
  async reschedule(
    ref: Ref | string,
    due: Due,
    options: CallOptions & { spread?: Duration } = {},
  ): Promise<ChangeResult> {
    return this.#change(
      "reschedule",
      "POST",
      ref,
      ":reschedule",
      JSON.stringify(wireDue(due, options.spread)),
      options,
    );
  }

  /** Makes a message due now; a dead letter is put back. Rejects with NotFoundError and TooLateError. */
  async publishNow(ref: Ref | string, options: CallOptions = {}): Promise<ChangeResult> {
    return this.#change("publish_now", "POST", ref, ":publish-now", undefined, options);
  }

  /** Shows a message as it is now, with its payload if `body` is true. Rejects with NotFoundError. */
  async get(ref: Ref | string, options: CallOptions & { body?: boolean } = {}): Promise<Info> {
    const query: Record<string, string> = options.body ? { body: "1" } : {};
    const answer = await this.#make({ verb: "get", method: "GET", path: this.#pathOf(ref, "", query) }, options);
    return info(answer.body);
  }

  /** Cancels all messages with the tag, the key, or both. */
  async cancelAll(filter: { tag?: string; key?: string }, options: CallOptions = {}): Promise<CancelCount> {
    const { tag, key } = filter;
    const query = { ...(tag === undefined ? {} : { tag }), ...(key === undefined ? {} : { key }) };
    const { body } = await this.#make(
      { verb: "cancel_all", method: "DELETE", path: this.#path("/messages", query) },
      options,
      cancelAllMs,
    );
    return {
      done: Number(body.done),
      maybePublished: Number(body.maybe_published),
      tooLate: Number(body.too_late),
      more: body.more === true,
      notDurable: body.not_durable === true,
    };
  }

  #path(below: string, query: Record<string, string>): string {
    const pairs = Object.entries(query).map(([name, value]) => `${name}=${escapePart(name, value)}`);
    return `/api/v1/queues/${this.queue}${below}${pairs.length > 0 ? `?${pairs.join("&")}` : ""}`;
  }

  #pathOf(ref: Ref | string, verb: string, query: Record<string, string> = {}): string {
    const { id, key } = refOf(ref);
    if (typeof id !== "string" || id === "") {
      throw invalid("id", id, "1 to 255 bytes");
    }
    const all = { ...query, ...(key ? { key } : {}) };
    if (id === "." || id === "..") {
      // fetch takes them for a way up, however they are written.
      return this.#path(`/messages/-${verb}`, { ...all, dots: String(id.length) });
    }
    return this.#path(`/messages/${escapePart("id", id)}${verb}`, all);
  }

  async #schedule(verb: Call["verb"], below: string, body: string, options: ScheduleOptions): Promise<Answer> {
    const key = options.idempotencyKey ?? randomUUID();
    if (!/^[ -~]{1,255}$/.test(key)) {
      throw invalid("idempotencyKey", key, "1 to 255 printable ASCII characters");
    }
    return this.#make({ verb, method: "POST", path: this.#path(below, {}), body, key }, options);
  }

  async #change(
    verb: Call["verb"],
    method: Call["method"],
    ref: Ref | string,
    suffix: string,
    body: string | undefined,
    options: CallOptions,
  ): Promise<ChangeResult> {
    const call: Call = { verb, method, path: this.#pathOf(ref, suffix), ...(body === undefined ? {} : { body }) };
    const answer = await this.#make(call, options);
    return {
      status: answer.body.status as ChangeResult["status"],
      maybePublished: answer.body.maybe_published === true,
      notDurable: answer.body.not_durable === true,
    };
  }

  async #make(call: Call, options: CallOptions, moreMs = 0): Promise<Answer> {
    const { signal, traceparent } = options;
    const timeout = options.timeout === undefined ? this.#timeout : positive("timeout", options.timeout);
    if (signal !== undefined) {
      setMaxListeners(Number.POSITIVE_INFINITY, signal); // Many calls at once may have one: Node would warn of a leak.
    }
    return make(call, {
      clock: this.#clock,
      random: this.#random,
      servers: this.#servers,
      signal,
      deadline: this.#clock.now() + timeout,
      token: async () => this.#token?.(),
      send: (server, token, leftMs) => {
        const headers: Record<string, string> = {
          ...(call.body === undefined ? {} : { "Content-Type": "application/json" }),
          ...(call.key === undefined ? {} : { "Idempotency-Key": call.key }),
          ...(token === undefined ? {} : { Authorization: `Bearer ${token}` }),
          ...(traceparent === undefined ? {} : { traceparent }),
        };
        return this.#send(server, call, headers, Math.min(leftMs, this.#attemptTimeout + moreMs), signal);
      },
    });
  }

  /** Sends one request, and reads its answer. */
  async #send(
    server: number,
    call: Call,
    headers: Record<string, string>,
    ms: number,
    signal: AbortSignal | undefined,
  ): Promise<Attempt> {
    signal?.throwIfAborted();
    const ending = new AbortController();
    const abort = () => ending.abort(signal?.reason);
    signal?.addEventListener("abort", abort);
    const timer = setTimeout(() => ending.abort(new DOMException("no answer in time", "TimeoutError")), ms);
    try {
      const response = await this.#fetch(`${this.#addresses[server]}${call.path}`, {
        method: call.method,
        headers,
        redirect: "manual", // A redirect may make a GET of a POST.
        signal: ending.signal,
        ...(call.body === undefined ? {} : { body: call.body }),
      });
      const body = parse(await response.text());
      return { kind: "answer", status: response.status, headers: response.headers, body };
    } catch (cause) {
      signal?.throwIfAborted();
      return { kind: "fault", isSent: !isBeforeSending(cause), cause };
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener("abort", abort);
    }
  }
}

function addressOf(server: string): string {
  let url: URL;
  try {
    url = new URL(server);
  } catch {
    throw invalid("servers", server, 'an address such as "http://127.0.0.1:8080"');
  }
  if (url.protocol !== "http:" && url.protocol !== "https:") {
    throw invalid("servers", server, 'an address such as "http://127.0.0.1:8080"');
  }
  if (url.username !== "" || url.password !== "" || url.search !== "" || url.hash !== "") {
    throw invalid("servers", url.origin, "without a login, query and fragment");
  }
  return `${url.origin}${url.pathname}`.replace(/\/+$/, "");
}

function positive(name: string, ms: number): number {
  if (!(ms > 0)) {
    throw invalid(name, ms, "more than 0 ms");
  }
  return ms;
}

/** Escapes what may mean something in an address. */
function escapePart(field: string, part: string): string {
  if (!part.isWellFormed()) {
    throw invalid(field, "text", "it must have no lone surrogates");
  }
  return encodeURIComponent(part).replace(/[!'()*]/g, (c) => `%${c.charCodeAt(0).toString(16).toUpperCase()}`);
}

/** An answer's object, or undefined if it is none. */
function parse(text: string): Body | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Body) : undefined;
  } catch {
    return undefined;
  }
}

/** Whether fetch has failed before it had a connection, so that nothing was sent. */
function isBeforeSending(error: unknown): boolean {
  const cause = (error as { cause?: { code?: string; syscall?: string; errors?: { syscall?: string }[] } } | undefined)
    ?.cause;
  if (cause === undefined || cause === null) {
    return false;
  }
  const isConnecting = (e: { syscall?: string }) => e.syscall === "connect" || e.syscall === "getaddrinfo";
  // An address with several IPs has an error for each.
  return (
    isConnecting(cause) || cause.code === "UND_ERR_CONNECT_TIMEOUT" || (cause.errors?.every(isConnecting) ?? false)
  );
}

function scheduled(body: Body, replayed: boolean): ScheduleResult {
  const dueAt = instant(body.due_at);
  return {
    id: String(body.id),
    key: String(body.key ?? ""),
    ...(dueAt === undefined ? {} : { dueAt }),
    status: body.status as ScheduleResult["status"],
    notDurable: body.not_durable === true,
    replayed,
  };
}

function itemError(item: Body): DelaybridgeError {
  return problem({ id: item.id, due_at: item.due_at, ...(item.error as Body) });
}

function end(body: Body): End {
  return {
    state: body.state as End["state"],
    ...present({
      at: instant(body.at),
      place: body.place as string | undefined,
      topic: body.topic as string | undefined,
      attempt: body.attempt as number | undefined,
      reason: body.reason as string | undefined,
    }),
  };
}

function info(body: Body): Info {
  const { body: text, body_base64: base64 } = body;
  const payload =
    typeof base64 === "string"
      ? Buffer.from(base64, "base64")
      : typeof text === "string"
        ? Buffer.from(text)
        : undefined;
  return {
    id: String(body.id),
    key: String(body.key ?? ""),
    queue: String(body.queue),
    topic: String(body.topic),
    state: body.state as Info["state"],
    attempt: Number(body.attempt),
    maybePublished: body.maybe_published === true,
    tags: (body.tags ?? []) as string[],
    headers: (body.headers ?? {}) as Record<string, string>,
    ...present({
      dueAt: instant(body.due_at),
      scheduledAt: instant(body.scheduled_at),
      reason: body.reason as string | undefined,
      route: body.route as string | undefined,
      sealedBy: body.sealed_by as string | undefined,
      end: body.end === undefined ? undefined : end(body.end as Body),
      body: payload === undefined ? undefined : new Uint8Array(payload),
    }),
  };
}

/** The members that there are. */
function present<T extends object>(members: T): { [K in keyof T]?: Exclude<T[K], undefined> } {
  return Object.fromEntries(Object.entries(members).filter(([, value]) => value !== undefined)) as {
    [K in keyof T]?: Exclude<T[K], undefined>;
  };
}
