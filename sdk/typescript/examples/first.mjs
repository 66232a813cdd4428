// Schedules a message that is due in one second, and receives it: node first.mjs BRIDGE NATS, the addresses that bridge dev prints.
import { connect } from "@nats-io/transport-node";
import { Client } from "delaybridge";

const [server, broker] = process.argv.slice(2);
const connection = await connect({ servers: broker });
const arrivals = connection.subscribe("order.timeout", { max: 1 });
const client = new Client({ servers: server, queue: "orders" });
const { id } = await client.schedule({ topic: "order.timeout", body: "order 42", due: "PT1S" });
console.log("scheduled", id);
for await (const arrival of arrivals) {
  console.log("received", arrival.string());
}
await connection.close();
