// The program that DELAYBRIDGE_TEST_BRIDGE names, which `make sdk-typescript` builds, as a child process.
import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import net from "node:net";

/** A process, and what it has printed. */
export class Program {
  readonly process: ChildProcess;
  #output = "";
  #changed: (() => void)[] = [];

  constructor(...args: string[]) {
    this.process = spawn(process.env.DELAYBRIDGE_TEST_BRIDGE ?? "bridge", args, { stdio: ["ignore", "pipe", "pipe"] });
    for (const stream of [this.process.stdout, this.process.stderr]) {
      stream?.on("data", (part: Buffer) => this.#tell(part.toString()));
    }
    this.process.on("exit", () => this.#tell("\nended\n"));
  }

  #tell(more: string): void {
    this.#output += more;
    for (const change of this.#changed.splice(0)) {
      change();
    }
  }

  /** Waits until it has printed what fits. */
  async printed(pattern: RegExp): Promise<string> {
    for (;;) {
      const found = pattern.exec(this.#output);
      if (found !== null) {
        return found[1] ?? "";
      }
      assert.doesNotMatch(this.#output, /\nended\n$/);
      await new Promise<void>((resolve) => this.#changed.push(resolve));
    }
  }

  /** Waits until the bridge at that address is ready, which it does not print. */
  async ready(address: string): Promise<void> {
    for (;;) {
      const isReady = await fetch(`${address}/readyz`).then(
        (r) => r.ok,
        () => false,
      );
      if (isReady) {
        return;
      }
      assert.equal(this.process.exitCode, null, this.#output);
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }

  async end(signal: NodeJS.Signals): Promise<void> {
    if (this.process.exitCode === null && this.process.signalCode === null) {
      const ended = new Promise((resolve) => this.process.on("exit", resolve));
      this.process.kill(signal);
      await ended;
    }
  }
}

/** A port of this host that nobody uses now. */
export async function freePort(): Promise<number> {
  const free = net.createServer().listen(0, "127.0.0.1");
  await once(free, "listening");
  const { port } = free.address() as net.AddressInfo;
  free.close();
  await once(free, "close");
  return port;
}
