// Plays faults.json with servers that break at their sockets, and a clock that moves when the client waits.
import assert from "node:assert/strict";
import { suite, test } from "node:test";
import { Client, type Clock } from "delaybridge";
import { type Answer, type Fault, ScriptedServer, type Step } from "./server.js";
import { type Call, chance, fill, givens, type Json, make, match, read } from "./vectors.js";

interface Attempt {
  server: number;
  wait_ms?: [number, number];
  fault?: Fault | "refused";
  answer?: Answer;
  headers?: Record<string, string>;
}

interface Vector {
  name: string;
  servers: number;
  tokens?: string[];
  options?: { timeout_ms?: number; attempt_timeout_ms?: number };
  calls: { call: Call; attempts: Attempt[]; result?: unknown; error?: Json }[];
}

/** Plays the attempts of a call, and is the client's clock: in its waits servers open and close. */
class Player implements Clock {
  readonly servers: ScriptedServer[];
  #attempts: Attempt[] = [];
  /** How many of the attempts have been made; those that are refused, no server sees. */
  #made = 0;
  #ms = Date.now();

  constructor(count: number) {
    this.servers = Array.from(
      { length: count },
      (_, i) =>
        new ScriptedServer(
          () => this.#next(i),
          () => this.#isReset(i),
        ),
    );
  }

  now(): number {
    return this.#ms;
  }

  async sleep(ms: number): Promise<void> {
    this.#skipRefused();
    const [least = 0, most = 0] = this.#attempts[this.#made]?.wait_ms ?? [Number.NaN, Number.NaN];
    assert.ok(ms >= least && ms <= most, `the wait before attempt ${this.#made} is ${ms}, not ${least} to ${most}`);
    this.#ms += ms;
    await this.#arrange();
  }

  async begin(attempts: Attempt[]): Promise<void> {
    this.#attempts = attempts;
    this.#made = 0;
    await this.#arrange();
  }

  /** Checks that all attempts were made. */
  end(): void {
    this.#skipRefused();
    assert.equal(this.#made, this.#attempts.length, "attempts");
  }

  /** Goes on behind attempts that no server sees, up to one that comes after a wait. */
  #skipRefused(): void {
    while (this.#attempts[this.#made]?.fault === "refused") {
      this.#made++;
      if (this.#attempts[this.#made]?.wait_ms !== undefined) {
        return;
      }
    }
  }

  /** Opens and closes servers as the attempts up to the next wait have it. */
  async #arrange(): Promise<void> {
    const rest = this.#attempts.slice(this.#made);
    const wait = rest.findIndex((a, i) => i > 0 && a.wait_ms !== undefined);
    const now = wait < 0 ? rest : rest.slice(0, wait);
    for (const [i, server] of this.servers.entries()) {
      const mine = now.filter((a) => a.server === i);
      await (mine.some((a) => a.fault === "refused") ? server.close() : server.listen());
    }
  }

  #isReset(server: number): boolean {
    const attempt = this.#attempts.slice(this.#made).find((a) => a.fault !== "refused");
    return attempt?.server === server && attempt.fault === "reset";
  }

  #next(server: number): Step {
    while (this.#attempts[this.#made]?.fault === "refused") {
      this.#made++;
    }
    const attempt = this.#attempts[this.#made++];
    assert.equal(attempt?.server, server, `the server of attempt ${this.#made - 1}`);
    return fill({ fault: attempt?.fault as Fault, answer: attempt?.answer as Answer });
  }
}

suite("faults", () => {
  for (const v of read<{ vectors: Vector[] }>("faults.json").vectors) {
    test(v.name, async () => {
      const player = new Player(v.servers);
      for (const server of player.servers) {
        await server.listen();
      }
      const tokens = [...(v.tokens ?? [])];
      const client = new Client({
        servers: player.servers.map((s) => s.address),
        queue: "orders",
        clock: player,
        random: chance(),
        ...(v.tokens === undefined ? {} : { token: () => (tokens.length > 1 ? tokens.shift() : tokens[0]) as string }),
        ...(v.options?.timeout_ms === undefined ? {} : { timeout: v.options.timeout_ms }),
        ...(v.options?.attempt_timeout_ms === undefined ? {} : { attemptTimeout: v.options.attempt_timeout_ms }),
      });
      const keys = new Set<string | undefined>();
      try {
        for (const { call, attempts, result, error } of v.calls) {
          for (const server of player.servers) {
            server.received.length = 0;
          }
          await player.begin(attempts);
          const outcome = await make(client, call);
          match(outcome, error === undefined ? { result } : { error }, new Map(givens));
          player.end();
          const received = player.servers.flatMap((s) => s.received);
          const read = attempts.filter((a) => a.fault !== "refused" && a.fault !== "reset");
          assert.equal(received.length, read.length);
          for (const [i, r] of received.entries()) {
            const { method, path, body, query } = received[0] as typeof r;
            assert.deepEqual(
              { method: r.method, path: r.path, body: r.body, query: r.query },
              { method, path, body, query },
            );
            assert.equal(r.headers["idempotency-key"], received[0]?.headers["idempotency-key"]);
            for (const [name, value] of Object.entries((player.servers.length === 1 && read[i]?.headers) || {})) {
              assert.equal(r.headers[name.toLowerCase()], value);
            }
          }
          const key = received[0]?.headers["idempotency-key"];
          assert.equal(key !== undefined, call.do.startsWith("schedule"));
          assert.ok(key === undefined || !keys.has(key), "each call has a key of its own");
          keys.add(key);
        }
      } finally {
        await Promise.all(player.servers.map((s) => s.close()));
      }
    });
  }
});
