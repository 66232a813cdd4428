// The code of docs/migrate/bullmq.md. No test runs it.
import { Queue, Worker } from 'bullmq';

const connection = { host: '127.0.0.1', port: 6379 };
const api = 'http://127.0.0.1:8080/api/v1';

// Before.
export async function withBullMQ() {
  const queue = new Queue('orders', { connection });
  const job = await queue.add('order.timeout', { order: 42 }, { jobId: 'order-42/timeout', delay: 30 * 60_000 });
  await job.changeDelay(2 * 60 * 60_000); // The customer asked for more time,
  await job.remove(); // and then paid.

  new Worker('orders', async (job) => callOff(job.data), { connection });
}

// After.
async function call(method, path, body) {
  const response = await fetch(api + path, {
    method, body: body && JSON.stringify(body), headers: { 'Content-Type': 'application/json' },
  });
  const answer = await response.json();
  if (!response.ok) throw Object.assign(new Error(answer.detail), { code: answer.code });
  return answer;
}

export async function withDelaybridge() {
  const message = '/queues/orders/messages/order-42%2Ftimeout';
  await call('POST', '/queues/orders/messages', {
    id: 'order-42/timeout', topic: 'order.timeout', body: JSON.stringify({ order: 42 }), in: '30m', conflict: 'keep',
  });
  await call('POST', `${message}:reschedule`, { in: '2h' });
  await call('DELETE', message); // code too_late: it is being published right now; not_found: it was
}

// What is due within the next minute is left to BullMQ: it may be on its way.
const margin = 60_000;

// Moves what waits in the delayed set and returns how many. It may be run again at any
// time, also after it was broken off. redis is a client of ioredis.
export async function move(queue, redis) {
  let moved = 0;
  for (let start = 0; ;) {
    const jobs = await queue.getDelayed(start, start + 199); // what is due next comes first
    if (jobs.length === 0) return moved;
    const far = [];
    for (const job of jobs) {
      // job.delay does not tell: changeDelay counts it from its own call.
      const due = Math.floor(Number(await redis.zscore(queue.toKey('delayed'), job.id)) / 4096);
      if (due > Date.now() + margin) far.push({ job, due });
    }
    start += jobs.length - far.length;
    if (far.length === 0) continue;
    const { results } = await call('POST', '/queues/orders/messages:batch', {
      messages: far.map(({ job, due }) => ({
        id: job.id, topic: job.name, body: JSON.stringify(job.data), at: new Date(due).toISOString(), conflict: 'keep',
      })),
    });
    for (const [i, { job }] of far.entries()) {
      if (results[i].error) throw new Error(`${job.id}: ${results[i].error.detail}`);
      await job.remove();
      moved++;
    }
  }
}

async function callOff() {}
