// Schedules as fast as one process can, for `figures load`: node load.mjs BRIDGE, with a token in TOKEN. Each line of the
// input is a way and for how many seconds: `one 5`, `many 5` (64 callers), `batcher 5`. The answer is how many messages were
// scheduled.
import { createInterface } from "node:readline";
import { Batcher, Client } from "delaybridge";

const client = new Client({ servers: process.argv[2], queue: "orders", token: process.env.TOKEN });
const message = { topic: "load", body: "x".repeat(256), due: "P1D" };

async function one(end) {
  let count = 0;
  for (; performance.now() < end; count++) {
    await client.schedule(message);
  }
  return count;
}

async function many(end) {
  const counts = await Promise.all(Array.from({ length: 64 }, () => one(end)));
  return counts.reduce((sum, count) => sum + count, 0);
}

async function batcher(end) {
  const batches = new Batcher(client);
  let count = 0;
  let failure;
  for (; performance.now() < end && !failure; count++) {
    await batches.ready;
    batches.add(message).catch((error) => {
      failure = error;
    });
  }
  await batches.close();
  if (failure) throw failure;
  return count;
}

const ways = { one, many, batcher };
for await (const line of createInterface({ input: process.stdin })) {
  const [way, seconds] = line.split(" ");
  console.log(await ways[way](performance.now() + Number(seconds) * 1000));
}
