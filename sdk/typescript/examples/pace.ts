// Measures how many messages a second one process schedules: TOKEN=… node pace.js http://127.0.0.1:8080
// Without a token that has a higher rate, a bridge takes 500 calls a second.
import { Batcher, Client } from "delaybridge";

async function measure(what: string, count: number, schedule: () => Promise<void>): Promise<void> {
  const begin = performance.now();
  await schedule();
  console.log(`${what}: ${Math.round((count * 1000) / (performance.now() - begin))} messages/s`);
}

async function main(...servers: string[]): Promise<void> {
  const client = new Client({ servers, queue: "orders", ...(process.env.TOKEN ? { token: process.env.TOKEN } : {}) });
  const message = { topic: "pace", body: "x".repeat(256), due: "P1D" };
  const singles = 5_000;
  const inBatches = 50_000;
  await measure("one by one, 64 at once", singles, async () => {
    let left = singles;
    const lane = async () => {
      while (left-- > 0) {
        await client.schedule(message);
      }
    };
    await Promise.all(Array.from({ length: 64 }, lane));
  });
  await measure("in batches", inBatches, async () => {
    const batcher = new Batcher(client);
    for (let i = 0; i < inBatches; i++) {
      await batcher.ready;
      void batcher.add(message);
    }
    await batcher.close();
  });
}

void main(...process.argv.slice(2));
