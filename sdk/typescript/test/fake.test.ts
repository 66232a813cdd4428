import assert from "node:assert/strict";
import { suite, test } from "node:test";
import { NotFoundError, TooLateError } from "delaybridge";
import { FakeBridge } from "delaybridge/testing";

suite("fake bridge", () => {
  test("each message is published at its due time, in due order", async () => {
    const bridge = new FakeBridge({ start: new Date("2031-01-01T00:00:00Z") });
    const client = bridge.client("orders");
    await client.schedule({
      id: "b",
      topic: "t",
      due: "PT2H",
      body: "later",
      headers: { tenant: "a" },
      tags: ["y", "x"],
    });
    await client.schedule({ id: "a", key: "k", topic: "t", due: new Date("2031-01-01T01:00:00Z") });
    assert.equal(bridge.requireScheduled("t", "PT1H").id, "a");
    assert.deepEqual(await bridge.advance(3_599_999), []);
    const published = await bridge.advance("P1D");
    assert.deepEqual(
      published.map((p) => [p.id, p.at.toISOString()]),
      [
        ["a", "2031-01-01T01:00:00.000Z"],
        ["b", "2031-01-01T02:00:00.000Z"],
      ],
    );
    const { "delay-uid": uid, ...headers } = bridge.requirePublished("t").headers;
    assert.match(uid as string, /^\w{16}$/);
    assert.deepEqual(headers, {
      tenant: "a",
      "delay-tags": "x,y",
      "delay-id": "b",
      "delay-queue": "orders",
      "delay-due-at": "2031-01-01T02:00:00.000Z",
      "delay-scheduled-at": "2031-01-01T00:00:00.000Z",
      "delay-attempt": "1",
    });
    assert.equal(bridge.requirePublished("t").text, "later");
    assert.equal(bridge.now().toISOString(), "2031-01-02T00:59:59.999Z");
  });

  test("a cancel while it is published comes too late, and a consumer may schedule the next one", async () => {
    const bridge = new FakeBridge();
    const client = bridge.client("orders");
    let times = 0;
    bridge.handle("t", async ({ id }) => {
      await assert.rejects(client.cancel(id), TooLateError);
      if (++times < 3) {
        await client.schedule({ topic: "t", due: "PT10M" });
      }
    });
    await client.schedule({ topic: "t", due: "PT10M" });
    assert.equal((await bridge.advance("PT1H")).length, 3);
    await assert.rejects(client.cancel(bridge.requirePublished("t").id), NotFoundError);
  });

  test("a refused topic goes to the dead letters, and a reschedule puts it back", async () => {
    const bridge = new FakeBridge();
    const client = bridge.client("orders");
    bridge.refuse("t", "no such topic");
    await client.schedule({ id: "a", topic: "t", due: 0 });
    await bridge.advance(0);
    assert.equal(bridge.dead("t")[0]?.reason, "no such topic");
    const info = await client.get("a");
    assert.deepEqual([info.state, info.end?.reason], ["dead", "no such topic"]);
    await client.reschedule("a", "PT1H");
    bridge.requireScheduled("t", "PT1H");
  });

  test("a body is what it was, byte for byte", async () => {
    const client = new FakeBridge().client("orders");
    for (const bytes of [[], [0xef, 0xbb, 0xbf, 0x41], [0xff, 0x00], [0x00, 0x0a, 0x7f]]) {
      const { id } = await client.schedule({ topic: "t", due: "PT1H", body: Uint8Array.from(bytes) });
      assert.deepEqual([...((await client.get(id, { body: true })).body as Uint8Array)], bytes);
    }
    for (const whole of ["xabcx", "x\xff\xfe\xfdx"]) {
      const part = Buffer.from(whole, "latin1").subarray(1, 4);
      const { id } = await client.schedule({ topic: "t", due: "PT1H", body: part });
      assert.deepEqual([...((await client.get(id, { body: true })).body as Uint8Array)], [...part]);
    }
  });

  test("an outage, and messages with a limit on lateness", async () => {
    const bridge = new FakeBridge();
    const client = bridge.client("orders");
    await client.schedule({ id: "dropped", topic: "t", due: 0, late: { after: "PT30M", then: "drop" } });
    await client.schedule({ id: "dead", topic: "t", due: 0, late: { after: "PT30M", then: "dead" } });
    await client.schedule({ id: "late", topic: "t", due: 0, late: { after: "PT2H", then: "drop" } });
    bridge.pause();
    assert.deepEqual(await bridge.advance("PT1H"), []);
    bridge.resume();
    assert.deepEqual(
      (await bridge.advance(0)).map((p) => p.id),
      ["late"],
    );
    assert.deepEqual(
      bridge.dead().map((p) => p.id),
      ["dead"],
    );
  });

  test("debounce: it is put off, but not beyond max_wait", async () => {
    const bridge = new FakeBridge({ start: new Date("2031-01-01T00:00:00Z") });
    const client = bridge.client("orders");
    const put = () => client.schedule({ id: "a", topic: "t", due: "PT5M", maxWait: "PT12M", conflict: "replace" });
    await put();
    await bridge.advance("PT4M");
    await put();
    await bridge.advance("PT4M");
    await put();
    const [published] = await bridge.advance("PT1H");
    assert.equal(published?.at.toISOString(), "2031-01-01T00:12:00.000Z");
    assert.equal(published?.headers["delay-first-at"], "2031-01-01T00:00:00.000Z");
  });

  test("a client lives through faults, without waiting", async () => {
    const bridge = new FakeBridge();
    const client = bridge.client("orders");
    bridge.fail("lost");
    bridge.fail("unavailable", 3);
    assert.equal((await client.schedule({ topic: "t", due: 0 })).replayed, true);
    assert.equal(bridge.scheduled().length, 1);
    bridge.fail("full");
    await assert.rejects(client.schedule({ topic: "t", due: 0 }), { code: "full", status: 507 });
  });

  test("what is required says what there is", async () => {
    const bridge = new FakeBridge({ start: new Date("2031-01-01T00:00:00Z") });
    bridge.requireNothing();
    await bridge.client("orders").schedule({ id: "a", key: "k", topic: "t", due: "PT1H" });
    assert.throws(
      () => bridge.requireScheduled("t", "PT2H"),
      /no message to t waits, due 2031-01-01T02:00.*a \(key k\) {2}due 2031-01-01T01:00/s,
    );
    assert.throws(() => bridge.requirePublished("t"), /nothing was published to t/);
    assert.throws(() => bridge.requireNothing(), /there should be no message/);
    bridge.requireNothing("u");
  });
});
