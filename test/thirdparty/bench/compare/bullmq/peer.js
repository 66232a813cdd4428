// BullMQ as a peer: schedules and delivers what is asked for on standard input,
// one JSON object a line, and answers on standard output in the same way.
import { createInterface } from 'node:readline';
import { Queue, Worker } from 'bullmq';
import Redis from 'ioredis';

const [port, handlers] = process.argv.slice(2).map(Number);
const connect = () => new Redis({ port, maxRetriesPerRequest: null });
const queue = new Queue('orders', { connection: connect() });
const body = '0123456789abcdef'.repeat(16);
const identity = (i) => 'm-' + String(i).padStart(24, '0');
const say = (answer) => process.stdout.write(JSON.stringify(answer) + '\n');

async function schedule({ first, count, size, callers, due, step }) {
  let next = 0;
  const message = (i) => ({
    name: 'due',
    data: { body },
    opts: { jobId: identity(i), delay: due + (i - first) * step - Date.now(), removeOnComplete: true },
  });
  const call = async () => {
    for (;;) {
      const from = first + next;
      const n = Math.min(size, first + count - from);
      if (n <= 0) return;
      next += n;
      if (size === 1) {
        const m = message(from);
        await queue.add(m.name, m.data, m.opts);
      } else {
        await queue.addBulk(Array.from({ length: n }, (_, i) => message(from + i)));
      }
    }
  };
  await Promise.all(Array.from({ length: callers }, call));
}

let load;
let worker;

function take(id) {
  const i = Number(id.slice(2)) - load.first;
  if (i < 0 || i >= load.count) return;
  if (load.at[i] > 0) {
    load.twice++;
    return;
  }
  load.at[i] = Date.now();
  if (--load.left === 0) say({ at: Array.from(load.at), twice: load.twice });
}

async function deliver({ first, count }) {
  load = { first, count, left: count, at: new Float64Array(count), twice: 0 };
  if (worker) return;
  worker = new Worker('orders', async (job) => take(job.id), { connection: connect(), concurrency: handlers });
  worker.once('error', (err) => console.error('BullMQ, the first error of perhaps many:', err.message));
  worker.on('error', () => {}); // Without a listener the process would end.
  await worker.waitUntilReady();
}

const verbs = { schedule, deliver };
for await (const line of createInterface({ input: process.stdin })) {
  const request = JSON.parse(line);
  try {
    await verbs[request.do](request);
    say({ ok: true });
  } catch (err) {
    say({ error: err.message });
  }
}
process.exit(0);
