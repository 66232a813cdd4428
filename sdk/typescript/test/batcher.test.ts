import assert from "node:assert/strict";
import { suite, test } from "node:test";
import { Batcher, Client, InvalidError, type Message } from "delaybridge";
import { FakeBridge } from "delaybridge/testing";

const message: Message = { topic: "t", due: 1000 };

/** A client whose requests wait until they are let go, and how many messages each has. */
function held(): { client: Client; sizes: number[]; letGo: () => void } {
  const bridge = new FakeBridge();
  const sizes: number[] = [];
  const waiting: (() => void)[] = [];
  let isHeld = true;
  const client = new Client({
    servers: "http://fake",
    queue: "orders",
    fetch: async (url, init) => {
      sizes.push((JSON.parse(String(init.body)) as { messages: unknown[] }).messages.length);
      if (isHeld) {
        await new Promise<void>((resolve) => waiting.push(resolve));
      }
      return bridge.fetch(url, init);
    },
  });
  const letGo = () => {
    isHeld = false;
    for (const go of waiting.splice(0)) {
      go();
    }
  };
  return { client, sizes, letGo };
}

suite("batcher", () => {
  test("a lone message is sent after a while, without a close", async () => {
    const batcher = new Batcher(new FakeBridge().client("orders"));
    assert.equal((await batcher.add(message)).status, "created");
  });

  test("a full queue lets nobody in, and drops nothing", async () => {
    const { client, sizes, letGo } = held();
    const batcher = new Batcher(client, { maxMessages: 2, maxQueued: 5, maxInFlight: 1, linger: 60_000 });
    const results = Array.from({ length: 5 }, () => batcher.add(message));
    let isReady = false;
    const ready = batcher.ready.then(() => {
      isReady = true;
    });
    results.push(batcher.add(message), batcher.add(message)); // They wait outside.
    await new Promise((resolve) => setImmediate(resolve));
    assert.deepEqual(sizes, [2], "one batch is under way");
    assert.equal(isReady, false);
    assert.equal(batcher.size, 7);
    letGo();
    await ready;
    await batcher.close();
    assert.equal((await Promise.all(results)).length, 7);
    assert.deepEqual(sizes, [2, 2, 2, 1]);
    assert.equal(batcher.size, 0);
  });

  test("a queue that is full by bytes lets nobody in", async () => {
    const { client, letGo } = held();
    const batcher = new Batcher(client, { maxQueuedBytes: 100, linger: 60_000 });
    const large = batcher.add({ ...message, body: "x".repeat(200) });
    let isReady = false;
    const ready = batcher.ready.then(() => {
      isReady = true;
    });
    await new Promise((resolve) => setImmediate(resolve));
    assert.equal(isReady, false);
    letGo();
    await Promise.all([large, ready]);
  });

  test("flush sends what is there, and the batcher goes on", async () => {
    const bridge = new FakeBridge();
    const batcher = new Batcher(bridge.client("orders"), { linger: 60_000, maxQueued: 3 });
    const first = Array.from({ length: 10 }, () => batcher.add(message));
    await batcher.flush();
    assert.equal(bridge.scheduled().length, 10);
    const next = batcher.add(message);
    await batcher.close();
    await Promise.all([...first, next]);
    await assert.rejects(batcher.add(message), InvalidError);
  });

  test("an invalid message is refused at once, and its batch is not", async () => {
    const batcher = new Batcher(new FakeBridge().client("orders"));
    const results = [
      batcher.add({ ...message, due: "soon" }),
      batcher.add(message),
      batcher.add({ ...message, topic: "" }),
    ];
    await batcher.close();
    const settled = await Promise.allSettled(results);
    assert.deepEqual(
      settled.map((r) => (r.status === "fulfilled" ? r.value.status : (r.reason as InvalidError).field)),
      ["due", "created", "topic"],
    );
  });

  test("when no server is there, every message is told", async () => {
    const bridge = new FakeBridge();
    bridge.fail("refused", 1000);
    const batcher = new Batcher(bridge.client("orders"), { maxMessages: 2 });
    const results = Array.from({ length: 5 }, () => batcher.add(message));
    await batcher.close();
    for (const result of await Promise.allSettled(results)) {
      assert.equal(result.status === "rejected" && (result.reason as { code: string }).code, "unavailable");
    }
  });

  for (const options of [{ maxMessages: 1001 }, { maxMessages: 0 }, { linger: -1 }, { maxQueued: Number.NaN }]) {
    test(`no such options: ${JSON.stringify(options)}`, () => {
      assert.throws(() => new Batcher(new FakeBridge().client("orders"), options), InvalidError);
    });
  }
});
