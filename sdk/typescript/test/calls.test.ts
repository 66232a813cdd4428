// Plays calls.json: against a scripted server, and against the fake, which must answer as the API does.
import assert from "node:assert/strict";
import { suite, test } from "node:test";
import { Client } from "delaybridge";
import { FakeBridge } from "delaybridge/testing";
import { type Answer, type Received, ScriptedServer } from "./server.js";
import { type Call, fill, givens, type Json, make, match, read, type Vars } from "./vectors.js";

interface Request {
  method: string;
  path: string;
  query?: Record<string, string>;
  headers?: Record<string, string>;
  body?: Json;
}

interface Vector {
  name: string;
  before?: (Request | "claim")[];
  call: Call;
  options?: { token?: string };
  request: Request;
  answer: Answer;
  result?: unknown;
  error?: Json;
  real?: boolean;
}

const { calls } = read<{ calls: Vector[] }>("calls.json");

function checkRequest(received: Received, expected: Request, vars: Vars): void {
  assert.equal(`${received.method} ${received.path}`, `${expected.method} ${expected.path}`);
  assert.deepEqual(received.query, expected.query ?? {});
  for (const [name, value] of Object.entries(expected.headers ?? {})) {
    match(received.headers[name.toLowerCase()], value, vars, name);
  }
  if (expected.body === undefined) {
    assert.equal(received.body, "");
  } else {
    match(JSON.parse(received.body), expected.body, vars, "body");
  }
  const key = received.headers["idempotency-key"];
  assert.equal(key !== undefined, expected.headers?.["Idempotency-Key"] !== undefined, "an Idempotency-Key");
}

suite("calls against a scripted server", () => {
  for (const v of calls) {
    test(v.name, async () => {
      const server = new ScriptedServer(() => ({ answer: fill(v.answer) }));
      await server.listen();
      try {
        const client = new Client({ servers: server.address, queue: v.call.queue, ...v.options });
        const outcome = await make(client, v.call);
        const vars = new Map(givens);
        match(outcome, v.error === undefined ? { result: v.result } : { error: v.error }, vars);
        assert.equal(server.received.length, 1);
        checkRequest(server.received[0] as Received, v.request, vars);
      } finally {
        await server.close();
      }
    });
  }
});

suite("calls against the fake", () => {
  for (const v of calls.filter((c) => c.real !== false)) {
    const isForToken = v.answer.status === 401 || v.answer.status === 403;
    test(v.name, { skip: isForToken && "the fake has no tokens" }, async () => {
      const bridge = new FakeBridge({ queues: ["orders"] });
      for (const step of v.before ?? []) {
        await prepare(bridge, step);
      }
      const outcome = await make(bridge.client(v.call.queue), v.call);
      match(outcome, v.error === undefined ? { result: v.result } : { error: v.error }, new Map());
    });
  }
});

async function prepare(bridge: FakeBridge, step: Request | "claim"): Promise<void> {
  if (step === "claim") {
    // A handler that never ends keeps it in flight.
    bridge.handle("t", () => new Promise(() => {}));
    void bridge.advance(0);
    return;
  }
  const query = new URLSearchParams(step.query).toString();
  const answer = await bridge.fetch(`http://fake${step.path}?${query}`, {
    method: step.method,
    ...(step.headers === undefined ? {} : { headers: step.headers }),
    body: JSON.stringify(step.body),
  });
  assert.equal(answer.status, 201);
}
