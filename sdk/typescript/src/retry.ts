import type { Clock } from "./clock.js";
import { type Code, type DelaybridgeError, type ErrorDetails, errorOf } from "./errors.js";
import { instant } from "./time.js";

// This file decides what becomes of a call: the rules are those of sdk/vectors/README.md, which all SDKs share.

/** A call as it is sent, again and again until it is answered. */
export interface Call {
  readonly verb: "schedule" | "schedule_batch" | "cancel" | "reschedule" | "publish_now" | "get" | "cancel_all";
  readonly method: "GET" | "POST" | "DELETE";
  /** Path and query below the server's address. */
  readonly path: string;
  readonly body?: string;
  readonly key?: string;
}

/** What came of one request: an answer, or a fault. */
export type Attempt =
  | { readonly kind: "answer"; readonly status: number; readonly headers: Headers; readonly body: Body | undefined }
  /** `isSent` says that the request may have reached the server. */
  | { readonly kind: "fault"; readonly isSent: boolean; readonly cause: unknown };

/** A JSON object. */
export type Body = Record<string, unknown>;

/** What an attempt without a whole success means for the call. */
interface Verdict {
  /** End with the error, ask another server, the same one after a wait, or the same one under a new token. */
  readonly next: "end" | "another" | "same" | "token";
  readonly error: DelaybridgeError;
  /** The request may have had an effect that nobody told. */
  readonly isOpen: boolean;
  /** How long the server asks to wait. */
  readonly afterMs: number;
}

const mostRetryAfterMs = 10_000;
const keyInUseMs = 1000;
const firstWaitMs = 100;
const mostWaitMs = 5000;

/** What a problem without a code means: it is not the bridge's, but a proxy's. */
const codeOfStatus: Record<number, Code> = {
  401: "unauthorized",
  403: "forbidden",
  413: "invalid",
  429: "rate_limited",
  502: "unavailable",
  503: "unavailable",
  504: "unavailable",
};

/** The codes of a batch's items with which it is sent again. */
const againCodes = new Set<unknown>(["unavailable", "no_layout", "unknown", "failed"]);

function retryAfterMs(headers: Headers): number {
  const seconds = Number(headers.get("Retry-After") ?? 0);
  return seconds > 0 ? Math.min(seconds * 1000, mostRetryAfterMs) : 0;
}

function text(value: unknown): string | undefined {
  return typeof value === "string" && value !== "" ? value : undefined;
}

/** The error of a problem, or of a batch's item; `of` is what is known besides. */
export function problem(body: Body, of: ErrorDetails & { code?: Code } = {}): DelaybridgeError {
  const code = (text(body.code) as Code | undefined) ?? of.code ?? "failed";
  const { code: _, ...details } = of;
  const known = { field: text(body.field), id: text(body.id), dueAt: instant(body.due_at) };
  const given = Object.fromEntries(Object.entries({ ...details, ...known }).filter(([, value]) => value !== undefined));
  return errorOf(code, text(body.detail) ?? text(body.title) ?? code, given);
}

/** The error of an answer that is no success. */
function refusal(call: Call, answer: Attempt & { kind: "answer" }): DelaybridgeError {
  const { status, headers, body = {} } = answer;
  const requestId = headers.get("X-Request-Id");
  return problem(
    { detail: `the server has answered ${status}`, ...body },
    {
      status,
      code: codeOfStatus[status] ?? "failed",
      ...(call.key === undefined ? {} : { idempotencyKey: call.key }),
      ...(requestId === null ? {} : { requestId }),
    },
  );
}

const isSuccess = (status: number): boolean => status >= 200 && status < 300;

/** Whether an item of a batch was not done, but may be by a repetition. */
const isPart = (body: Body): boolean =>
  Array.isArray(body.results) &&
  body.results.some((item: Body) => againCodes.has((item.error as Body | undefined)?.code));

/** Why there was no answer: fetch has it in its error's cause. */
function reasonOf(error: unknown): string {
  const { message, cause } = (error ?? {}) as { message?: string; cause?: { message?: string; code?: string } };
  return cause?.message || cause?.code || message || String(error);
}

/** Decides what an attempt without a whole success means. */
function judge(call: Call, attempt: Attempt): Verdict {
  if (attempt.kind === "fault") {
    const error = errorOf("unavailable", `no server has answered: ${reasonOf(attempt.cause)}`, {
      cause: attempt.cause,
    });
    return { next: "another", error, isOpen: attempt.isSent, afterMs: 0 };
  }
  const { status, headers, body } = attempt;
  const afterMs = retryAfterMs(headers);
  if (isSuccess(status)) {
    const detail = body === undefined ? "the answer is no JSON object" : "a part was not done";
    return { next: "another", error: errorOf("unavailable", detail), isOpen: body === undefined, afterMs };
  }
  const error = refusal(call, attempt);
  if (status === 401) {
    return { next: "token", error, isOpen: false, afterMs: 0 };
  }
  if (status === 429) {
    return { next: "same", error, isOpen: false, afterMs };
  }
  if (body?.code === "key_in_use") {
    return { next: "same", error, isOpen: false, afterMs: keyInUseMs };
  }
  if (status >= 500 && status !== 501 && status !== 505 && status !== 507) {
    const isOpen = body?.code !== "unavailable" && body?.code !== "no_layout";
    return { next: "another", error, isOpen, afterMs };
  }
  return { next: "end", error, isOpen: false, afterMs: 0 };
}

/** Says that the outcome of a call is unknown. */
function unknown(call: Call, cause: DelaybridgeError): DelaybridgeError {
  if (cause.code === "unknown") {
    return cause;
  }
  const key = call.key === undefined ? {} : { idempotencyKey: call.key };
  return errorOf("unknown", `the answer was lost, so it may have been done or not: ${cause.message}`, {
    ...key,
    cause,
  });
}

/** The error of a call that has no more time. */
function givenUp(call: Call, last: DelaybridgeError, isOpen: boolean): DelaybridgeError {
  if (call.verb === "get") {
    return last.code === "unknown" ? errorOf("unavailable", last.message, { cause: last }) : last; // It changes nothing.
  }
  return isOpen ? unknown(call, last) : last;
}

/** The refusals that prove that an earlier request of the call had no effect either, though nobody told its end. */
const settling: Record<Call["verb"], readonly Code[]> = {
  schedule: ["duplicate", "too_late", "invalid", "key_reused"],
  schedule_batch: ["duplicate", "too_late", "invalid", "key_reused"],
  cancel: ["too_late", "invalid"],
  reschedule: ["invalid"],
  publish_now: ["invalid"],
  cancel_all: ["invalid"],
  get: [],
};

/** The error of a call that was refused. */
function refused(call: Call, error: DelaybridgeError, isOpen: boolean): DelaybridgeError {
  const isTold = !isOpen || call.verb === "get" || settling[call.verb].includes(error.code);
  return isTold ? error : unknown(call, error);
}

/** By which a call is made. */
export interface Caller {
  readonly clock: Clock;
  /** From 0 up to 1. */
  readonly random: () => number;
  readonly servers: Servers;
  /** When the call must be answered, by the clock. */
  readonly deadline: number;
  /** The call's own signal. */
  readonly signal: AbortSignal | undefined;
  /** The token for a request. */
  token(): Promise<string | undefined>;
  /** Sends one request, and never throws but for the signal's reason. */
  send(server: number, token: string | undefined, ms: number): Promise<Attempt>;
}

/** The servers of a client: all calls begin with the current one, until that fails one of them. */
export class Servers {
  constructor(
    readonly count: number,
    public current: number,
  ) {}

  /** The one after the given one, which has failed. */
  after(failed: number): number {
    const next = (failed + 1) % this.count;
    if (this.current === failed) {
      this.current = next;
    }
    return next;
  }
}

/** An answer to a call. */
export interface Answer {
  readonly body: Body;
  readonly isReplayed: boolean;
}

/** Makes a call: sends its request until that is answered, or the time is over. */
export async function make(call: Call, by: Caller): Promise<Answer> {
  let server = by.servers.current;
  let token = await by.token();
  let mayRenew = true;
  let isOpen = false;
  let waits = 0;
  let asked = 0;
  let part: Answer | undefined;
  const leftMs = () => by.deadline - by.clock.now();
  for (;;) {
    const attempt = await by.send(server, token, leftMs());
    const answer = answerOf(attempt);
    if (answer !== undefined && !isPart(answer.body)) {
      return answer;
    }
    const verdict = judge(call, attempt);
    if (verdict.next === "end" || verdict.next === "token") {
      const another = verdict.next === "token" && mayRenew ? await by.token() : token;
      if (another === token) {
        return standing(part, refused(call, verdict.error, isOpen));
      }
      token = another;
      mayRenew = false;
      continue;
    }
    isOpen ||= verdict.isOpen;
    part = answer !== undefined ? answer : part && verdict.isOpen ? opened(part) : part;
    asked++;
    if (verdict.next === "same") {
      asked = by.servers.count;
    } else {
      server = by.servers.after(server);
    }
    let waitMs = 0;
    if (asked >= by.servers.count) {
      waitMs = verdict.afterMs + by.random() * Math.min(mostWaitMs, firstWaitMs * 2 ** waits);
      waits++;
      asked = 0;
    }
    if (leftMs() <= waitMs) {
      return standing(part, givenUp(call, verdict.error, isOpen));
    }
    if (waitMs > 0) {
      await by.clock.sleep(waitMs, by.signal);
    }
  }
}

/** The answer of an attempt, if it is a success. */
function answerOf(attempt: Attempt): Answer | undefined {
  if (attempt.kind === "fault" || !isSuccess(attempt.status) || attempt.body === undefined) {
    return undefined;
  }
  return { body: attempt.body, isReplayed: attempt.headers.get("Idempotent-Replayed") === "true" };
}

/** What a call comes to that has failed: a part of a batch's results, if there is one. */
function standing(part: Answer | undefined, error: DelaybridgeError): Answer {
  if (part !== undefined) {
    return part;
  }
  throw error;
}

/** A part of a batch's results after an attempt of which nobody told the end: what was not done may be done now. */
function opened(part: Answer): Answer {
  const results = (part.body.results as Body[]).map((item) =>
    againCodes.has((item.error as Body | undefined)?.code)
      ? { ...item, error: { ...(item.error as Body), code: "unknown" } }
      : item,
  );
  return { ...part, body: { ...part.body, results } };
}
