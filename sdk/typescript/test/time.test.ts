import assert from "node:assert/strict";
import { suite, test } from "node:test";
import { InvalidError } from "delaybridge";
import { spreadMs, xxh64 } from "../src/spread.js";
import { type Due, dueMs, durationMs } from "../src/time.js";

suite("times", () => {
  const durations: [number | string, number][] = [
    [0, 0],
    [0.2, 1],
    ["PT30M", 1_800_000],
    ["P2D", 172_800_000],
    ["P1W", 604_800_000],
    ["P1DT2H3M4.0055S", 93_784_006],
    ["PT1.1S", 1100],
    ["PT0S", 0],
  ];
  for (const [given, ms] of durations) {
    test(`the duration ${given}`, () => assert.equal(durationMs("due", given), ms));
  }
  for (const given of [
    -1,
    Number.NaN,
    Number.POSITIVE_INFINITY,
    "",
    "P",
    "PT",
    "30m",
    "P1Y",
    "P1M",
    "-PT1S",
    "PT1",
    "P1DT",
    "PT1H1H",
  ]) {
    test(`no duration: ${given}`, () =>
      assert.throws(() => durationMs("due", given), { name: InvalidError.name, field: "due" }));
  }

  const instant = Date.UTC(2031, 0, 31, 9);
  const dues: [Due, boolean, number][] = [
    [new Date(instant), false, instant],
    ["2031-01-31T09:00:00Z", false, instant],
    ["2031-01-31t10:00:00+01:00", false, instant],
    ["2031-01-31T09:00:00.0000001Z", false, instant + 1],
    ["2031-01-31T09:00:00.25Z", false, instant + 250],
    ["PT1S", true, 1000],
    [1500.2, true, 1501],
  ];
  for (const [given, isDelay, ms] of dues) {
    test(`due ${given}`, () => assert.deepEqual(dueMs(given), { isDelay, ms }));
  }
  for (const given of [new Date(Number.NaN), "2031-13-01T00:00:00Z", "2031-01-31", "tomorrow", undefined, null]) {
    test(`not due: ${given}`, () =>
      assert.throws(() => dueMs(given as Due), { name: InvalidError.name, field: "due" }));
  }
});

suite("spread", () => {
  const hashes: [string, bigint][] = [
    ["", 0xef46db3751d8e999n],
    ["a", 0xd24ec4f1a98c6e5bn],
    ["abc", 0x44bc2cf5ad770999n],
    ["asdf", 0x415872f599cea71en],
    ["Call me Ishmael. Some years ago--never mind how long precisely-", 0x02a2e85470d6fd96n],
  ];
  for (const [text, hash] of hashes) {
    test(`the hash of ${text.length} bytes`, () => assert.equal(xxh64(Buffer.from(text)), hash));
  }
  test("a share is that of the other SDKs", () =>
    assert.equal(spreadMs("order-42", "order-42/timeout", 600_000), 402_476));
});
