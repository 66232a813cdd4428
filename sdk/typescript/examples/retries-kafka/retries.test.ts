// The consumer with a real Kafka and a real bridge, which `make sdk-typescript` starts.
import assert from "node:assert/strict";
import { after, before, suite, test } from "node:test";
import { NotFoundError } from "delaybridge";
import { type Consumer, Partitioners } from "kafkajs";
import { consume } from "./consumer.js";
import { type Delivery, Retrier } from "./retry.js";
import { type Surroundings, surround } from "./surroundings.js";

const isMissing = ["BRIDGE", "KAFKA_URL", "REDIS_URL"].some((n) => process.env[`DELAYBRIDGE_TEST_${n}`] === undefined);

suite("retries", { skip: isMissing && "make sdk-typescript starts Kafka", timeout: 120_000 }, () => {
  let around: Surroundings;
  let retrier: Retrier;
  const consumers: Consumer[] = [];

  before(async () => {
    around = await surround();
    const { client, deadTopic } = around;
    retrier = new Retrier(client, { limit: 2, delay: (n) => 100 * n, deadTopic });
  });

  after(async () => {
    await Promise.all(consumers.map((one) => one.disconnect()));
    await around[Symbol.asyncDispose]();
  });

  test("who fails comes again, and nobody waits for it", async () => {
    const { kafka, topic, deadTopic } = around;
    const seen: string[] = [];
    let charged = () => {};
    const isCharged = new Promise<void>((resolve) => {
      charged = resolve;
    });
    const charge = async ({ body, headers }: Delivery) => {
      const attempt = Number(headers["retry-attempt"] ?? 0);
      const card = body.toString();
      seen.push(`${card} ${attempt}`);
      if (card === "bad" || (card === "slow" && attempt < 2)) throw new Error(`${card}\nwas declined`);
      if (card === "slow") charged();
    };
    consumers.push(await consume(kafka, topic, retrier, charge));
    const dead = kafka.consumer({ groupId: `${deadTopic}-consumer` });
    consumers.push(dead);
    await dead.connect();
    await dead.subscribe({ topic: deadTopic, fromBeginning: true });
    const letter = new Promise<Record<string, string | undefined>>((resolve) => {
      void dead.run({
        eachMessage: async ({ message: { key, value, headers = {} } }) =>
          resolve({
            key: key?.toString(),
            value: value?.toString(),
            ...Object.fromEntries(Object.entries(headers).map(([name, v]) => [name, v?.toString()])),
          }),
      });
    });
    const producer = kafka.producer({ createPartitioner: Partitioners.DefaultPartitioner });
    await producer.connect();
    const messages = ["bad", "slow", "good"].map((value) => ({ key: "k", value, headers: { tenant: "t" } }));
    await producer.send({ topic, messages });
    await producer.disconnect();

    const [{ key, value, ...headers }] = await Promise.all([letter, isCharged]);
    assert.deepEqual([key, value, headers.tenant, headers["retry-attempt"]], ["k", "bad", "t", "2"]);
    assert.deepEqual([headers["retry-topic"], headers["retry-origin"]], [topic, `${topic}/0/0`]);
    assert.equal(headers["retry-error"], "bad was declined");
    assert.deepEqual(seen.slice(0, 3), ["bad 0", "slow 0", "good 0"]);
    assert.deepEqual(seen.slice(3).toSorted(), ["bad 1", "bad 2", "slow 1", "slow 2"]);
  });

  test("a delivery that comes twice is repeated once", async () => {
    const { client, topic } = around;
    const id = `${topic}/0/1000/retry/1`;
    const delivery = { name: `${topic}/0/1000`, topic, key: "", headers: {}, body: Buffer.from("good") };
    const fail = (why: string) => retrier.handle(delivery, () => Promise.reject(new Error(why)));
    const later = new Retrier(client, { ...retrier.policy, delay: () => 3_600_000 });
    await later.handle(delivery, () => Promise.reject(new Error("declined")));
    await later.handle(delivery, () => Promise.reject(new Error("declined")));
    assert.equal((await client.get(id)).headers["retry-error"], "declined");
    await client.cancel(id); // As if it had been published.
    await fail("the card is too old");
    await assert.rejects(client.get(id), NotFoundError);
  });
});
