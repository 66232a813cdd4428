import assert from "node:assert/strict";
import { once } from "node:events";
import http from "node:http";
import type { AddressInfo } from "node:net";
import { suite, test } from "node:test";
import { Client, DelaybridgeError, InvalidError } from "delaybridge";
import { FakeBridge, InstantClock } from "delaybridge/testing";

suite("client", () => {
  test("its connections are kept alive", async () => {
    let connections = 0;
    const server = http.createServer((_, response) => {
      response.setHeader("Content-Type", "application/json");
      response.end('{"status": "cancelled", "maybe_published": false}');
    });
    server.on("connection", () => connections++);
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    const client = new Client({
      servers: `http://127.0.0.1:${(server.address() as AddressInfo).port}/`,
      queue: "orders",
    });
    try {
      for (let i = 0; i < 20; i++) {
        await client.cancel("a");
      }
      assert.ok(connections <= 2, `${connections} connections`); // fetch may begin another one before the first is free.
    } finally {
      server.close();
      server.closeAllConnections();
    }
  });

  test("a signal ends a call, also while it waits for the next try", async () => {
    const hanging = new Client({
      servers: "http://x",
      queue: "orders",
      fetch: hang,
      attemptTimeout: 600_000,
      timeout: 600_000,
    });
    const ending = new AbortController();
    const call = hanging.schedule({ topic: "t", due: 0 }, { signal: ending.signal });
    const reason = new Error("shutdown");
    ending.abort(reason);
    await assert.rejects(call, reason);
    await assert.rejects(hanging.cancel("a", { signal: ending.signal }), reason);

    const asked = new AbortController();
    const refusing = new Client({
      servers: "http://x",
      queue: "orders",
      fetch: async () => {
        setImmediate(() => asked.abort(reason));
        return new Response('{"code": "unavailable"}', { status: 503, headers: { "Retry-After": "10" } });
      },
    });
    await assert.rejects(refusing.schedule({ topic: "t", due: 0 }, { signal: asked.signal }), reason);
  });

  test("many calls may have one signal", async (t) => {
    const warnings: Error[] = [];
    const warn = (warning: Error) => warnings.push(warning);
    process.on("warning", warn);
    t.after(() => process.off("warning", warn));
    const ending = new AbortController();
    const hanging = new Client({
      servers: "http://x",
      queue: "orders",
      fetch: hang,
      attemptTimeout: 600_000,
      timeout: 600_000,
    });
    const calls = Array.from({ length: 50 }, () => hanging.cancel("a", { signal: ending.signal }));
    setImmediate(() => ending.abort());
    for (const { status } of await Promise.allSettled(calls)) {
      assert.equal(status, "rejected");
    }
    await new Promise((resolve) => setImmediate(resolve)); // Warnings come then.
    assert.deepEqual(warnings, []);
  });

  test("its waits grow, by chance", async () => {
    const waits: number[] = [];
    const clock = new InstantClock();
    const bridge = new FakeBridge();
    const client = bridge.client("orders", {
      random: () => 0.5,
      clock: {
        now: () => clock.now(),
        sleep: (ms) => {
          waits.push(ms);
          return clock.sleep(ms);
        },
      },
    });
    bridge.fail("refused", 8);
    await client.schedule({ topic: "t", due: 0 });
    assert.deepEqual(waits, [50, 100, 200, 400, 800, 1600, 2500, 2500]);
  });

  test("an error says why no server has answered", async () => {
    const server = http.createServer().listen(0, "127.0.0.1");
    await once(server, "listening");
    const { port } = server.address() as AddressInfo;
    server.close();
    await once(server, "close");
    const client = new Client({ servers: `http://127.0.0.1:${port}`, queue: "orders", timeout: 50 });
    await assert.rejects(client.get("a"), { name: "UnavailableError", message: /ECONNREFUSED/ });
  });

  test("a call ends with its time", async () => {
    const client = new Client({ servers: "http://x", queue: "orders", timeout: 60_000, fetch: hang });
    await assert.rejects(client.schedule({ topic: "t", due: 0 }, { timeout: 20 }), (e: DelaybridgeError) => {
      assert.equal(e.code, "unknown");
      assert.match(e.idempotencyKey as string, /^[\w-]{36}$/);
      return true;
    });
  });

  test("an unknown call is made again under its key, and has one effect", async () => {
    const bridge = new FakeBridge();
    const client = bridge.client("orders", { timeout: 1 });
    bridge.fail("lost");
    bridge.fail("unavailable", 10);
    const error = await client.schedule({ topic: "t", due: "PT1H" }).catch((e: DelaybridgeError) => e);
    assert.ok(error instanceof DelaybridgeError && error.code === "unknown");
    const again = new FakeBridge(); // Another one would do it again.
    assert.equal(again.scheduled().length, 0);
    assert.equal(bridge.scheduled().length, 1);
    const key = error.idempotencyKey as string;
    bridge.fail("refused", 0);
    const answer = await bridge.client("orders").schedule({ topic: "t", due: "PT1H" }, { idempotencyKey: key });
    assert.equal(answer.replayed, true);
    assert.equal(bridge.scheduled().length, 1);
  });

  const bad: [string, () => unknown][] = [
    ["servers", () => new Client({ servers: [], queue: "orders" })],
    ["servers", () => new Client({ servers: "127.0.0.1:8080", queue: "orders" })],
    ["servers", () => new Client({ servers: "ftp://a", queue: "orders" })],
    ["servers", () => new Client({ servers: "http://user:secret@a", queue: "orders" })],
    ["queue", () => new Client({ servers: "http://a", queue: "Orders/../x" })],
    ["timeout", () => new Client({ servers: "http://a", queue: "orders", timeout: 0 })],
  ];
  for (const [field, make] of bad) {
    test(`options that are ${field}: ${make}`, () => {
      assert.throws(
        make,
        (e: InvalidError) => e instanceof InvalidError && e.field === field && !e.message.includes("secret"),
      );
    });
  }

  const client = new FakeBridge().client("orders");
  const wrong: [string, () => Promise<unknown>][] = [
    ["id", () => client.cancel("")],
    ["id", () => client.cancel("\ud800")],
    ["body", () => client.schedule({ topic: "t", due: 0, body: "\ud800" })],
    ["due", () => client.reschedule("a", "soon")],
    ["late.after", () => client.schedule({ topic: "t", due: 0, late: { after: "1h", then: "drop" } })],
    ["idempotencyKey", () => client.schedule({ topic: "t", due: 0 }, { idempotencyKey: "ü" })],
    ["filter", () => client.cancelAll({})],
  ];
  for (const [field, make] of wrong) {
    test(`arguments that are wrong: ${make}`, async () => {
      await assert.rejects(make(), (e: InvalidError) => e instanceof InvalidError && e.field === field);
    });
  }
});

function hang(_: string, init: RequestInit): Promise<Response> {
  return new Promise((_, reject) => init.signal?.addEventListener("abort", () => reject(init.signal?.reason)));
}
