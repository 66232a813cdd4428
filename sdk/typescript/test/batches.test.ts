// Plays batches.json.
import assert from "node:assert/strict";
import { suite, test } from "node:test";
import { Batcher, Client, type DelaybridgeError } from "delaybridge";
import { type Answer, ScriptedServer } from "./server.js";
import { type Call, fill, givens, itemOf, match, messageOf, read } from "./vectors.js";

interface Vector {
  name: string;
  options: { max_messages?: number; max_bytes?: number };
  messages: Call[];
  requests: number[][];
  answers: Answer[];
  results: unknown[];
}

suite("batches", () => {
  for (const v of read<{ vectors: Vector[] }>("batches.json").vectors) {
    test(v.name, async () => {
      const answers = fill(v.answers);
      const server = new ScriptedServer(() => ({ answer: answers.shift() as Answer }));
      await server.listen();
      try {
        const client = new Client({ servers: server.address, queue: "orders" });
        const { max_messages, max_bytes } = v.options;
        const batcher = new Batcher(client, {
          maxInFlight: 1, // So that the requests come in order.
          ...(max_messages === undefined ? {} : { maxMessages: max_messages }),
          ...(max_bytes === undefined ? {} : { maxBytes: max_bytes }),
        });
        const results = v.messages.map((m) =>
          batcher.add(messageOf(m)).catch((error: unknown) => error as DelaybridgeError),
        );
        await batcher.close();
        match((await Promise.all(results)).map(itemOf), v.results, new Map(givens));
        const ids = server.received.map((r) =>
          (JSON.parse(r.body) as { messages: { id: string }[] }).messages.map((m) => m.id),
        );
        assert.deepEqual(
          ids,
          v.requests.map((r) => r.map((i) => v.messages[i]?.id)),
        );
        const keys = server.received.map((r) => r.headers["idempotency-key"]);
        assert.equal(new Set(keys).size, keys.length);
      } finally {
        await server.close();
      }
    });
  }
});
