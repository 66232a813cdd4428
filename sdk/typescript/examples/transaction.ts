// Schedules a message in a transaction: it is published only if that commits.
import { postgresOutbox } from "delaybridge/outbox";
import type { Pool } from "pg";

const outbox = postgresOutbox(); // or mysqlOutbox(), for a connection of mysql2/promise

export async function placeOrder(pool: Pool, order: number): Promise<void> {
  const client = await pool.connect();
  try {
    await client.query("BEGIN");
    await client.query("INSERT INTO orders (id) VALUES ($1)", [order]);
    await outbox.schedule(client, "orders", { id: `order-${order}/timeout`, topic: "order.timeout", due: "PT30M" });
    await client.query("COMMIT");
  } catch (error) {
    await client.query("ROLLBACK");
    throw error;
  } finally {
    client.release();
  }
}
