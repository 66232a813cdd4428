// What the players of sdk/vectors share: see its README.md.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import path from "node:path";
import { type BatchItem, type Client, DelaybridgeError, type Due, type Info, type Message } from "delaybridge";

export type Json = Record<string, unknown>;
export type Vars = Map<string, string>;

const folder = path.join(__dirname, "..", "..", "..", "vectors");

export function read<T>(file: string): T {
  return JSON.parse(readFileSync(path.join(folder, file), "utf8")) as T;
}

/** What a player puts for placeholders. */
export const givens: Vars = new Map([
  ["$ID", "01JFXQ7Z8M3V5K2N4P6R8T0W1Y"],
  ["$DUE", "2031-01-31T09:00:00.000Z"],
  ["$THEN", "2031-01-30T09:00:00.000Z"],
  ["$DETAIL", "why"],
]);

/** Puts values for placeholders. */
export function fill<T>(value: T, vars: Vars = givens): T {
  return JSON.parse(JSON.stringify(value), (_, v: unknown) => (typeof v === "string" ? (vars.get(v) ?? v) : v)) as T;
}

/** Compares with what is expected, and gives placeholders the values that they stand for. */
export function match(actual: unknown, expected: unknown, vars: Vars, where = ""): void {
  if (typeof expected === "string" && expected.startsWith("$")) {
    assert.equal(typeof actual, "string", `${where} is ${actual}`);
    assert.equal(actual, vars.get(expected) ?? actual, where);
    vars.set(expected, actual as string);
    return;
  }
  if (typeof expected !== "object" || expected === null) {
    assert.deepEqual(actual, expected, where);
    return;
  }
  assert.ok(typeof actual === "object" && actual !== null, `${where} is ${actual}`);
  assert.deepEqual(Object.keys(actual).sort(), Object.keys(expected).sort(), `${where}: ${JSON.stringify(actual)}`);
  for (const [name, value] of Object.entries(expected)) {
    match((actual as Json)[name], value, vars, `${where}.${name}`);
  }
}

interface Neutral {
  do: string;
  queue: string;
  id: string;
  key?: string;
  topic: string;
  body?: string;
  bytes_base64?: string;
  headers?: Record<string, string>;
  tags?: string[];
  in_ms?: number;
  at?: string;
  spread_ms?: number;
  max_wait_ms?: number;
  late?: { after_ms?: number; then: "publish" | "dead" | "drop" };
  conflict?: "reject" | "keep" | "replace";
  messages: Neutral[];
  idempotency_key?: string;
  traceparent?: string;
  with_body?: boolean;
  tag?: string;
}
export type Call = Neutral;

/** The members that are not undefined. */
function given<T extends object>(members: T): { [K in keyof T]: Exclude<T[K], undefined> } {
  return Object.fromEntries(Object.entries(members).filter(([, v]) => v !== undefined)) as never;
}

export const dueOf = (c: Neutral): Due => (c.in_ms ?? c.at) as Due;

export const refOf = (c: Neutral): { id: string; key?: string } => given({ id: c.id, key: c.key }) as { id: string };

export function messageOf(c: Neutral): Message {
  const late = c.late && given({ after: c.late.after_ms, then: c.late.then });
  const body = c.bytes_base64 === undefined ? c.body : Uint8Array.from(Buffer.from(c.bytes_base64, "base64"));
  const members = { id: c.id, key: c.key, topic: c.topic, body, headers: c.headers, tags: c.tags, due: dueOf(c) };
  const others = { spread: c.spread_ms, maxWait: c.max_wait_ms, late, conflict: c.conflict };
  return given({ ...members, ...others }) as unknown as Message;
}

function errorOf(error: DelaybridgeError): Json {
  const { code, status, field, id, dueAt } = error;
  assert.ok(error.constructor !== DelaybridgeError, `${code} has a class`);
  return given({ code, status, field, id, due_at: dueAt?.toISOString() });
}

function itemOf(item: BatchItem): Json {
  if (item instanceof DelaybridgeError) {
    return { error: errorOf(item) };
  }
  const { id, key, dueAt, status, notDurable, replayed } = item;
  return given({ id, key, due_at: dueAt?.toISOString(), status, not_durable: notDurable, replayed });
}

function infoOf(i: Info): Json {
  const { dueAt, scheduledAt, maybePublished, body, end, sealedBy, ...same } = i;
  return given({
    ...same,
    due_at: dueAt?.toISOString(),
    scheduled_at: scheduledAt?.toISOString(),
    maybe_published: maybePublished,
    sealed_by: sealedBy,
    end: end && given({ ...end, at: end.at?.toISOString() }),
    bytes_base64: body && Buffer.from(body).toString("base64"),
  });
}

/** Makes a call, and returns what came of it in neutral form. */
export async function make(client: Client, c: Call): Promise<{ result?: unknown; error?: Json }> {
  try {
    return { result: await dispatch(client, c) };
  } catch (error) {
    assert.ok(error instanceof DelaybridgeError, `${error}`);
    return { error: errorOf(error) };
  }
}

async function dispatch(client: Client, c: Call): Promise<unknown> {
  const traced = given({ traceparent: c.traceparent }) as { traceparent: string };
  const options = { ...traced, ...(given({ idempotencyKey: c.idempotency_key }) as { idempotencyKey: string }) };
  switch (c.do) {
    case "schedule":
      return itemOf(await client.schedule(messageOf(c), options));
    case "schedule_batch":
      return (await client.scheduleBatch(c.messages.map(messageOf), options)).map(itemOf);
    case "cancel":
      return changedOf(await client.cancel(refOf(c), traced));
    case "publish_now":
      return changedOf(await client.publishNow(refOf(c), traced));
    case "reschedule": {
      const spread = given({ spread: c.spread_ms }) as { spread: number };
      return changedOf(await client.reschedule(refOf(c), dueOf(c), { ...traced, ...spread }));
    }
    case "get":
      return infoOf(await client.get(refOf(c), { ...traced, body: c.with_body ?? false }));
    case "cancel_all": {
      const n = await client.cancelAll(given({ tag: c.tag, key: c.key }) as { tag: string }, traced);
      const { done, more } = n;
      return { done, maybe_published: n.maybePublished, too_late: n.tooLate, more, not_durable: n.notDurable };
    }
    default:
      throw new Error(`no call ${c.do}`);
  }
}

function changedOf(c: { status: string; maybePublished: boolean; notDurable: boolean }): Json {
  return { status: c.status, maybe_published: c.maybePublished, not_durable: c.notDurable };
}

export { itemOf };

/** Chance whose first number is 0, so that a client begins with the first server. */
export function chance(): () => number {
  let isFirst = true;
  return () => {
    const number = isFirst ? 0 : Math.random();
    isFirst = false;
    return number;
  };
}
