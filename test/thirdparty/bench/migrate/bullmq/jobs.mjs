// BullMQ for the tests of the import: does what is asked for on standard input, one JSON object a line, and answers
// each with a line.
import { createInterface } from 'node:readline';
import { FlowProducer, Queue, Worker } from 'bullmq';
import Redis from 'ioredis';

const connect = () => new Redis({ port: Number(process.argv[2]), maxRetriesPerRequest: null });
const queue = new Queue('orders', { connection: connect() });
const handled = [];
let worker;

const calls = {
  add: async ({ jobs }) => { await queue.addBulk(jobs); },
  flow: async ({ delay }) => {
    const child = { name: 'order.timeout', queueName: 'orders', data: {}, opts: { jobId: 'child', delay } };
    await new FlowProducer({ connection: connect() }).add({ name: 'parent', queueName: 'parents', children: [child] });
  },
  recur: async ({ pattern }) => { await queue.upsertJobScheduler('yearly', { pattern }, { name: 'order.timeout' }); },
  remove: async ({ id }) => queue.remove(id),
  changeDelay: async ({ id, delay }) => { await (await queue.getJob(id)).changeDelay(delay); },
  work: async () => {
    worker = new Worker('orders', async (job) => { handled.push(job.id); }, { connection: connect(), concurrency: 8 });
    await worker.waitUntilReady();
  },
  handled: async () => handled,
  counts: async () => queue.getJobCounts(),
};

for await (const line of createInterface({ input: process.stdin })) {
  const request = JSON.parse(line);
  try {
    process.stdout.write(JSON.stringify({ result: await calls[request.do](request) }) + '\n');
  } catch (err) {
    process.stdout.write(JSON.stringify({ error: String(err) }) + '\n');
  }
}
await worker?.close(true);
process.exit(0);
