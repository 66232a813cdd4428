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

// Cancels while both may have the message: BullMQ first, and always both, since remove says
// nothing of what is not there. What the import schedules after our answer it held before, so it
// finds that BullMQ has removed the job, and cancels the message.
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
