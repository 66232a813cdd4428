// Tests a producer without a server.
import assert from "node:assert/strict";
import { test } from "node:test";
import type { Client } from "delaybridge";
import { FakeBridge } from "delaybridge/testing";

async function placeOrder(client: Client, order: number): Promise<void> {
  await client.schedule({ id: `order-${order}/timeout`, topic: "order.timeout", due: "PT30M" });
}

test("an unpaid order is called off", async () => {
  const bridge = new FakeBridge();
  const client = bridge.client("orders"); // a real Client, without a network
  await placeOrder(client, 42);
  bridge.requireScheduled("order.timeout", "PT30M");

  await bridge.advance("PT30M");
  const message = bridge.requirePublished("order.timeout"); // its headers are those that a consumer gets
  assert.equal(message.headers["delay-id"], "order-42/timeout");
});
