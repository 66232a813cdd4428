// The SDK before real bridges: the program that DELAYBRIDGE_TEST_BRIDGE names, which `make sdk-typescript` builds.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { randomBytes } from "node:crypto";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import net from "node:net";
import os from "node:os";
import path from "node:path";
import { after, before, suite, test } from "node:test";
import { promisify } from "node:util";
import { Batcher, Client, DuplicateError, InvalidError, NotFoundError } from "delaybridge";
import { postgresOutbox } from "delaybridge/outbox";
import pg from "pg";
import { freePort, Program } from "./program.js";
import { chance } from "./vectors.js";

const bridge = process.env.DELAYBRIDGE_TEST_BRIDGE as string;
const postgresURL = process.env.DELAYBRIDGE_TEST_POSTGRES_URL;
const patience = 60_000;
const topic = "order.timeout";

/** A consumer of NATS: the ids of all messages to the topic, as they come. */
class Consumer {
  readonly ids: string[] = [];
  readonly #socket: net.Socket;
  #text = "";
  #changed: (() => void)[] = [];

  constructor(url: string) {
    const { hostname, port } = new URL(url);
    this.#socket = net.connect(Number(port), hostname);
    this.#socket.write(`CONNECT {"headers":true,"verbose":false}\r\nSUB ${topic} 1\r\nPING\r\n`);
    this.#socket.on("data", (part) => this.#read(part.toString("latin1")));
  }

  #read(part: string): void {
    if (part.includes("PING\r\n")) {
      this.#socket.write("PONG\r\n");
    }
    this.#text += part;
    const known = this.ids.length;
    for (const [, id = ""] of [...this.#text.matchAll(/^delay-id: ?(.*)\r\n/gim)].slice(known)) {
      this.ids.push(id);
    }
    for (const change of this.#changed.splice(0)) {
      change();
    }
  }

  /** Waits until it is subscribed. */
  async subscribed(): Promise<void> {
    await this.#until(() => this.#text.includes("PONG\r\n"));
  }

  /** Waits until all of these have come. */
  async consumed(ids: string[]): Promise<void> {
    await this.#until(() => ids.every((id) => this.ids.includes(id)));
  }

  async #until(isThere: () => boolean): Promise<void> {
    while (!isThere()) {
      await new Promise<void>((resolve) => this.#changed.push(resolve));
    }
  }

  close(): void {
    this.#socket.destroy();
  }
}

suite("real bridges", {
  skip: bridge === undefined && "DELAYBRIDGE_TEST_BRIDGE is not set",
  timeout: 3 * patience,
}, () => {
  const programs: Program[] = [];
  let dir: string;
  let dev: Program;
  let server: string;
  let consumer: Consumer;
  let database: pg.Client | undefined;
  let databaseURL = "";

  before(async () => {
    dir = await mkdtemp(path.join(os.tmpdir(), "delaybridge-sdk-"));
    const options: string[] = [];
    if (postgresURL !== undefined) {
      const name = `sdk_${randomBytes(6).toString("hex")}`;
      database = new pg.Client({ connectionString: postgresURL });
      await database.connect();
      await database.query(`CREATE DATABASE ${name}`);
      databaseURL = Object.assign(new URL(postgresURL), { pathname: name }).href;
      options.push("--outbox", databaseURL);
    }
    dev = start("dev", "--memory", ...options);
    server = (await dev.printed(/Console +(http:\S+\d)\//)) as string;
    consumer = new Consumer(await dev.printed(/NATS +(nats:\S+)/));
    await dev.printed(/(What reaches NATS is printed here)/);
    await consumer.subscribed();
  });

  after(async () => {
    consumer?.close();
    await Promise.all(programs.map((p) => p.end("SIGTERM")));
    if (database !== undefined) {
      await database.query(`DROP DATABASE IF EXISTS ${new URL(databaseURL).pathname.slice(1)} WITH (FORCE)`);
      await database.end();
    }
    await rm(dir, { recursive: true, force: true });
  });

  function start(...args: string[]): Program {
    const program = new Program(...args);
    programs.push(program);
    return program;
  }

  /** Starts another bridge before the Redis and the NATS of the first one, and returns it with its address. */
  async function another(): Promise<{ program: Program; address: string }> {
    const port = await freePort();
    const folder = await dev.printed(/Folder +(\S+)/);
    const text = await readFile(path.join(folder, "bridge.yaml"), "utf8");
    const file = path.join(dir, `${port}.yaml`);
    await writeFile(
      file,
      text
        .replace(/listen: 127.0.0.1:\d+/, `listen: 127.0.0.1:${port}`)
        .replace(/^(inlets|outbox):\n(( .*)?\n)*/gm, ""),
    );
    const program = start("run", "--config", file);
    const address = `http://127.0.0.1:${port}`;
    await program.ready(address);
    return { program, address };
  }

  async function advance(by: string): Promise<void> {
    const answer = await fetch(`${server}/dev/clock/advance`, { method: "POST", body: JSON.stringify({ by }) });
    assert.equal(answer.status, 200, await answer.text());
  }

  test("scheduled, shown, moved, cancelled, published", async () => {
    const client = new Client({ servers: server, queue: "orders" });
    const kept = await client.schedule({ id: "sdk/1 ü", key: "k", topic, body: "{}", due: "PT30M", tags: ["sdk"] });
    assert.equal(kept.status, "created");
    await assert.rejects(client.schedule({ id: "sdk/1 ü", key: "k", topic, due: 0 }), DuplicateError);
    await assert.rejects(
      client.schedule({ topic: "", due: 0 }),
      (e: InvalidError) => e instanceof InvalidError && e.field === "topic",
    );
    const info = await client.get({ id: "sdk/1 ü", key: "k" }, { body: true });
    assert.equal(info.state, "scheduled");
    assert.deepEqual(info.tags, ["sdk"]);
    assert.equal(Buffer.from(info.body as Uint8Array).toString(), "{}");
    const moved = await client.schedule({ id: "..", topic, due: "P1D" });
    assert.equal((await client.reschedule(moved.id, new Date(Date.now() + 3_600_000))).status, "rescheduled");
    await client.schedule({ id: "gone", topic, due: "PT1M" });
    assert.equal((await client.cancel("gone")).status, "cancelled");
    await assert.rejects(client.cancel("gone"), NotFoundError);
    const now = await client.schedule({ id: "now", topic, due: "P1W" });
    await client.publishNow(now.id);
    await consumer.consumed(["now"]);
    await advance("2h");
    await consumer.consumed(["sdk/1 ü", ".."].map((id) => Buffer.from(id).toString("latin1")));
    assert.ok(!consumer.ids.includes("gone"));
    await client.schedule({ topic, due: "PT1H", tags: ["customer-7"] });
    assert.equal((await client.cancelAll({ tag: "customer-7" })).done, 1);
  });

  test("in batches", async () => {
    const batcher = new Batcher(new Client({ servers: server, queue: "orders" }), { maxMessages: 100, maxQueued: 150 });
    const ids = Array.from({ length: 500 }, (_, i) => `batch-${i}`);
    const results: Promise<unknown>[] = [];
    for (const id of ids) {
      await batcher.ready;
      results.push(batcher.add({ id, topic, due: "PT1H" }));
      assert.ok(batcher.size <= 150);
    }
    await batcher.close();
    await Promise.all(results);
    await advance("2h");
    await consumer.consumed(ids);
  });

  test("one of two bridges is killed", async () => {
    const [first, second] = await Promise.all([another(), another()]);
    const client = new Client({ servers: [first.address, second.address], queue: "orders", random: chance() });
    const ids = Array.from({ length: 200 }, (_, i) => `killed-${i}`);
    const waiting = [...ids];
    let done = 0;
    await Promise.all(
      Array.from({ length: 4 }, async () => {
        for (let id = waiting.shift(); id !== undefined; id = waiting.shift()) {
          const { status } = await client.schedule({ id, topic, due: "PT1H" });
          assert.equal(status, "created");
          if (++done === 60) {
            await first.program.end("SIGKILL");
          }
        }
      }),
    );
    await advance("2h");
    await consumer.consumed(ids); // Each at least once: the jump of the clock takes shards from bridges that live.
    assert.equal(new Set(consumer.ids.filter((id) => id.startsWith("killed-"))).size, ids.length);
  });

  test("by a row of a transaction", {
    skip: postgresURL === undefined && "DELAYBRIDGE_TEST_POSTGRES_URL is not set",
  }, async () => {
    const config = path.join(await dev.printed(/Folder +(\S+)/), "bridge.yaml");
    await promisify(execFile)(bridge, ["outbox", "migrate", "up", "--config", config]);
    const client = new pg.Client({ connectionString: databaseURL });
    await client.connect();
    try {
      const outbox = postgresOutbox();
      await client.query("BEGIN");
      await outbox.schedule(client, "orders", { id: "rolled back", topic, due: 0 });
      await client.query("ROLLBACK");
      await client.query("BEGIN");
      await outbox.schedule(client, "orders", { id: "committed", topic, due: 0, body: "x" });
      await outbox.schedule(client, "orders", { id: "cancelled", topic, due: "PT1H" });
      await outbox.cancel(client, "orders", "cancelled");
      await client.query("COMMIT");
      await consumer.consumed(["committed"]);
      await advance("2h");
      assert.ok(!consumer.ids.includes("rolled back") && !consumer.ids.includes("cancelled"));
    } finally {
      await client.end();
    }
  });
});
