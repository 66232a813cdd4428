// Schedules a message, puts it off and cancels it: node order-timeout.js http://127.0.0.1:8080
import { Client, DuplicateError, NotFoundError, TooLateError } from "delaybridge";

async function main(...servers: string[]): Promise<void> {
  const client = new Client({ servers, queue: "orders" });
  try {
    const { id, dueAt } = await client.schedule({
      id: "order-42/timeout",
      key: "order-42",
      topic: "order.timeout",
      body: JSON.stringify({ order: 42 }),
      due: "PT30M", // or 1_800_000, or a Date
    });
    console.log(`${id} is due at ${dueAt?.toISOString()}`);
  } catch (error) {
    if (!(error instanceof DuplicateError)) throw error;
    console.log(`it waits already, until ${error.dueAt?.toISOString()}`);
  }
  const ref = { id: "order-42/timeout", key: "order-42" };
  await client.reschedule(ref, "PT2H");
  try {
    await client.cancel(ref);
    console.log("cancelled: it will never be published");
  } catch (error) {
    if (!(error instanceof NotFoundError || error instanceof TooLateError)) throw error;
    console.log(`it is out: ${error.message}`);
  }
}

void main(...process.argv.slice(2));
