// Starts all of it, to try it out: run.sh.
import { Partitioners } from "kafkajs";
import { consume } from "./consumer.js";
import { type Delivery, Retrier } from "./retry.js";
import { surround } from "./surroundings.js";

/** Charges a card: the second one fails twice, the third one always. */
async function charge({ body, headers }: Delivery): Promise<void> {
  const attempt = Number(headers["retry-attempt"] ?? 0);
  const card = body.toString();
  if (card === "card 3" || (card === "card 2" && attempt < 2)) {
    console.log(`${card}, attempt ${attempt + 1}: declined`);
    throw new Error(`${card} was declined`);
  }
  console.log(`${card}, attempt ${attempt + 1}: charged`);
}

async function main(): Promise<void> {
  await using around = await surround();
  const { kafka, client, topic, deadTopic } = around;
  const retrier = new Retrier(client, { limit: 3, delay: (n) => 1000 * 2 ** (n - 1), deadTopic });
  const consumer = await consume(kafka, topic, retrier, charge);
  const dead = kafka.consumer({ groupId: `${deadTopic}-consumer` });
  await dead.connect();
  await dead.subscribe({ topic: deadTopic, fromBeginning: true });
  await dead.run({
    eachMessage: async ({ message: { value, headers } }) =>
      console.log(`${value}: dead letter after ${headers?.["retry-attempt"]} repetitions: ${headers?.["retry-error"]}`),
  });
  const producer = kafka.producer({ createPartitioner: Partitioners.DefaultPartitioner });
  await producer.connect();
  await producer.send({ topic, messages: ["card 1", "card 2", "card 3", "card 4"].map((value) => ({ value })) });
  console.log(
    "Four cards are to be charged. Those that are declined come again after 1, 2 and 4 seconds. Ctrl-C ends it.",
  );
  await new Promise((resolve) => {
    for (const signal of ["SIGINT", "SIGTERM"]) {
      process.on(signal, resolve);
    }
  });
  await Promise.all([producer, consumer, dead].map((one) => one.disconnect()));
}

void main();
