// Schedules many messages in batches.
import { Batcher, type Client } from "delaybridge";

export async function remindAll(client: Client, customers: AsyncIterable<string>): Promise<Map<string, Error>> {
  const failed = new Map<string, Error>();
  const batcher = new Batcher(client);
  for await (const customer of customers) {
    await batcher.ready; // There is room: no more messages wait than maxQueued.
    batcher
      .add({ id: `${customer}/reminder`, topic: "reminder", due: "P7D", conflict: "keep" })
      .catch((error) => failed.set(customer, error));
  }
  await batcher.close(); // Sends the rest, and waits until every message has its result.
  return failed;
}
