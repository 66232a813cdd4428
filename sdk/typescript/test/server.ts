// A server of which a test says how each request ends, down to its sockets.
import { once } from "node:events";
import net from "node:net";

/** A request as it has come. */
export interface Received {
  method: string;
  path: string;
  query: Record<string, string>;
  headers: Record<string, string>;
  body: string;
}

export interface Answer {
  status: number;
  headers?: Record<string, string>;
  body?: unknown;
  text?: string;
}

export type Fault = "reset" | "dropped" | "cut" | "hang" | "garbled";

/** How the next connection ends, or its request. */
export interface Step {
  fault?: Fault;
  answer?: Answer;
}

export class ScriptedServer {
  #server: net.Server | undefined;
  #port = 0;
  #sockets = new Set<net.Socket>();
  readonly received: Received[] = [];

  /**
   * `next` says what becomes of the request that was read now, `isReset` whether the connection that begins is reset: fetch
   * makes one more, without a request, after one that was aborted.
   */
  constructor(
    readonly next: () => Step,
    readonly isReset: () => boolean = () => false,
  ) {}

  get address(): string {
    return `http://127.0.0.1:${this.#port}`;
  }

  async listen(): Promise<void> {
    if (this.#server === undefined) {
      this.#server = net.createServer((socket) => this.#serve(socket));
      this.#server.listen(this.#port, "127.0.0.1");
      await once(this.#server, "listening");
      this.#port = (this.#server.address() as net.AddressInfo).port;
    }
  }

  async close(): Promise<void> {
    const server = this.#server;
    this.#server = undefined;
    if (server !== undefined) {
      for (const socket of this.#sockets) {
        socket.destroy();
      }
      server.close();
      await once(server, "close");
    }
  }

  #serve(socket: net.Socket): void {
    this.#sockets.add(socket);
    socket.on("close", () => this.#sockets.delete(socket));
    socket.on("error", () => {}); // Who has gone needs no answer.
    if (this.isReset()) {
      this.next();
      socket.resetAndDestroy();
      return;
    }
    let read = Buffer.alloc(0);
    socket.on("data", (part) => {
      read = Buffer.concat([read, part]);
      const request = parse(read);
      if (request !== undefined) {
        this.received.push(request);
        end(socket, this.next());
      }
    });
  }
}

/** The request, if all of it is there. */
function parse(read: Buffer): Received | undefined {
  const at = read.indexOf("\r\n\r\n");
  if (at < 0) {
    return undefined;
  }
  const [first = "", ...lines] = read.subarray(0, at).toString().split("\r\n");
  const headers = Object.fromEntries(
    lines.map((line) => [line.slice(0, line.indexOf(":")).toLowerCase(), line.slice(line.indexOf(":") + 1).trim()]),
  );
  const body = read.subarray(at + 4);
  if (body.length < Number(headers["content-length"] ?? 0)) {
    return undefined;
  }
  const [method = "", target = ""] = first.split(" ");
  const [path = "", query = ""] = target.split("?");
  return { method, path, query: Object.fromEntries(new URLSearchParams(query)), headers, body: body.toString() };
}

function end(socket: net.Socket, { fault, answer }: Step): void {
  switch (fault) {
    case "hang":
      return;
    case "dropped":
      socket.resetAndDestroy();
      return;
    case "cut":
      socket.end('HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nContent-Length: 200\r\n\r\n{"id": "a", ');
      return;
    default:
      socket.end(text(answer ?? { status: 200, text: "<html>" }));
  }
}

function text({ status, headers = {}, body, text = JSON.stringify(body) }: Answer): string {
  const all = {
    "Content-Type": "application/json",
    "Content-Length": Buffer.byteLength(text),
    Connection: "close",
    ...headers,
  };
  const lines = Object.entries(all).map(([name, value]) => `${name}: ${value}\r\n`);
  return `HTTP/1.1 ${status} X\r\n${lines.join("")}\r\n${text}`;
}
