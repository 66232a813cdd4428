// Consumes a topic of Kafka whose messages are delivered again if they fail. Meanwhile the partition goes on.
import type { Consumer, IHeaders, Kafka } from "kafkajs";
import type { Delivery, Retrier } from "./retry.js";

/** Consumes until the consumer that it returns is disconnected. */
export async function consume(
  kafka: Kafka,
  topic: string,
  retrier: Retrier,
  handler: (delivery: Delivery) => Promise<void>,
): Promise<Consumer> {
  const consumer = kafka.consumer({ groupId: `${topic}-consumer` });
  await consumer.connect();
  await consumer.subscribe({ topic, fromBeginning: true });
  await consumer.run({
    // If it rejects, nothing is committed, and kafkajs begins at this message again.
    eachMessage: ({ topic, partition, message }) =>
      retrier.handle(
        {
          name: `${topic}/${partition}/${message.offset}`,
          topic,
          key: message.key?.toString() ?? "",
          headers: texts(message.headers),
          body: message.value ?? new Uint8Array(),
        },
        handler,
      ),
  });
  return consumer;
}

function texts(headers: IHeaders = {}): Record<string, string> {
  return Object.fromEntries(Object.entries(headers).map(([name, value]) => [name, String(value ?? "")]));
}
