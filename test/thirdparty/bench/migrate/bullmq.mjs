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

// Moves what waits in the delayed set and returns how many. One run at a time; it may be
// repeated, also where it was broken off. redis is a client of ioredis.
export async function move(queue, redis) {
  let moved = 0;
  for (let start = 0; ;) {
    const jobs = await queue.getDelayed(start, start + 199); // what is due next comes first
    if (jobs.length === 0) return moved;
    const far = [];
    for (const job of jobs) {
      // job.delay does not tell: changeDelay counts it from its own call.
      const score = await redis.zscore(queue.toKey('delayed'), job.id);
      if (score === null) continue; // It was cancelled since it was listed.
      const due = Math.floor(Number(score) / 4096);
      if (due > Date.now() + margin) far.push({ job, due });
      else start++; // It stays.
    }
    if (far.length === 0) continue;
    const { results } = await call('POST', '/queues/orders/messages:batch', {
      messages: far.map(({ job, due }) => ({
        id: job.id, topic: job.name, body: JSON.stringify(job.data), at: new Date(due).toISOString(), conflict: 'keep',
      })),
    });
    for (const [i, { job }] of far.entries()) {
      if (results[i].error) throw new Error(`${job.id}: ${results[i].error.detail}`);
      if (await queue.getJob(job.id)) {
        await job.remove();
        moved++;
      } else { // It was cancelled since it was listed.
        await cancel(job.id);
      }
    }
  }
}

// Cancels while both may have the message: BullMQ first, and always both, since remove says
// nothing of what is not there. What the move schedules after our answer, it had listed
// before BullMQ's, so it finds the job gone and takes the message back.
export async function cancelBoth(queue, id) {
  if (await queue.remove(id) === 0) throw new Error(`${id}: its processor runs`);
  await cancel(id);
}

// Cancels with us; what is not there is no error.
async function cancel(id) {
  try {
    await call('DELETE', `/queues/orders/messages/${encodeURIComponent(id)}`);
  } catch (err) {
    if (err.code !== 'not_found') throw err;
  }
}

async function callOff() {}
