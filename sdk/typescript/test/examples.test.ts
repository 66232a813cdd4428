import assert from "node:assert/strict";
import { suite, test } from "node:test";
import { FakeBridge } from "delaybridge/testing";
import { remindAll } from "../examples/batches.js";

suite("examples", () => {
  test("batches: who fails is told, and the others are reminded", async () => {
    const bridge = new FakeBridge();
    const customers = async function* () {
      for (let i = 0; i < 1200; i++) {
        yield i === 700 ? "\n" : `customer-${i}`;
      }
    };
    const failed = await remindAll(bridge.client("orders"), customers());
    assert.deepEqual([...failed.keys()], ["\n"]);
    assert.equal(bridge.scheduled("reminder").length, 1199);
  });
});
