// What the consumer needs around it: topics, and a bridge that publishes to Kafka.
import { randomBytes } from "node:crypto";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { Client } from "delaybridge";
import { Kafka, logLevel } from "kafkajs";
import { freePort, Program } from "../../test/program.js";

export interface Surroundings extends AsyncDisposable {
  kafka: Kafka;
  /** Of the queue that publishes to Kafka. */
  client: Client;
  topic: string;
  deadTopic: string;
}

/**
 * Makes two topics at the Kafka that DELAYBRIDGE_TEST_KAFKA_URL names, and starts the bridge of DELAYBRIDGE_TEST_BRIDGE with the
 * Redis of DELAYBRIDGE_TEST_REDIS_URL.
 */
export async function surround(): Promise<Surroundings> {
  const { DELAYBRIDGE_TEST_KAFKA_URL: brokers = "", DELAYBRIDGE_TEST_REDIS_URL: redis = "" } = process.env;
  const name = `payments-${randomBytes(6).toString("hex")}`;
  // It would log an error of each new group, whose coordinator is chosen at its first request.
  const kafka = new Kafka({ clientId: name, brokers: brokers.split(","), logLevel: logLevel.NOTHING });
  const topics = [name, `${name}.dead`];
  const admin = kafka.admin();
  await admin.connect();
  await admin.createTopics({ topics: topics.map((topic) => ({ topic, numPartitions: 1 })), waitForLeaders: true });
  await admin.disconnect();

  const dir = await mkdtemp(path.join(os.tmpdir(), "delaybridge-retries-"));
  const file = path.join(dir, "bridge.yaml");
  const port = await freePort();
  await writeFile(
    file,
    `prefix: ${name}
redis: {url: "${redis}"}
queues: {payments: {sink: kafka}}
sinks: {kafka: {type: kafka, brokers: ${JSON.stringify(brokers.split(","))}}}
admin: {listen: "127.0.0.1:${port}"}
`,
  );
  const bridge = new Program("run", "--config", file);
  const servers = `http://127.0.0.1:${port}`;
  await bridge.ready(servers);
  return {
    kafka,
    client: new Client({ servers, queue: "payments" }),
    topic: name,
    deadTopic: `${name}.dead`,
    [Symbol.asyncDispose]: async () => {
      await bridge.end("SIGTERM");
      await rm(dir, { recursive: true, force: true });
    },
  };
}
