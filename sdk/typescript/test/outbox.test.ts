// Plays outbox.json in real databases, with the tables that "bridge outbox migrate" makes. Needs
// DELAYBRIDGE_TEST_POSTGRES_URL and DELAYBRIDGE_TEST_MARIADB_URL, which .cache/bin/services sets.
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import { after, before, suite, test } from "node:test";
import { DelaybridgeError } from "delaybridge";
import { type MySQLTx, mysqlOutbox, type Outbox, type PostgresTx, postgresOutbox } from "delaybridge/outbox";
import mysql from "mysql2/promise";
import pg from "pg";
import { type Call, dueOf, type Json, match, messageOf, read, refOf, type Vars } from "./vectors.js";

interface Vector {
  name: string;
  calls: Call[];
  rows: Json[];
  results: Json[];
}

const { vectors } = read<{ vectors: Vector[] }>("outbox.json");

/** The statements that make the tables. */
function schema(dialect: string): string[] {
  const folder = path.join(__dirname, "..", "..", "..", "..", "delay", "outbox", "schema", dialect);
  return readdirSync(folder)
    .filter((file) => file.endsWith(".sql"))
    .sort()
    .flatMap((file) => {
      const [, rest = ""] = readFileSync(path.join(folder, file), "utf8").split("-- +goose Up\n");
      const [up = ""] = rest.split("-- +goose Down");
      const text = up
        .replaceAll("app.delay_outbox", "delay_outbox")
        .replaceAll("app.", "")
        .replace(/^\s*--.*\n/gm, "");
      return text
        .split(";\n")
        .map((s) => s.trim())
        .filter((s) => s !== "");
    });
}

/** A row as the vectors have it. */
function rowOf(row: Json, ids: number[]): Json {
  const { token, target, headers } = row;
  assert.match(String(token), /^~.{15}$/);
  return {
    queue: String(row.queue),
    message_key: String(row.message_key),
    message_id: String(row.message_id),
    topic: String(row.topic),
    op: Number(row.op),
    target: target === null ? null : ids.indexOf(Number(target)),
    tried: Boolean(row.tried),
    revision: Number(row.revision),
    due_ms: Number(row.due_ms),
    headers: typeof headers === "string" ? JSON.parse(headers) : headers,
    body: Buffer.from(row.body as Buffer).toString("base64"),
  };
}

const columns = "id, queue, message_key, message_id, op, target, token, tried, revision, due_ms, topic, headers, body";
const select = `SELECT ${columns} FROM delay_outbox ORDER BY id`;

async function check<Tx>(v: Vector, outbox: Outbox<Tx>, tx: Tx, rows: () => Promise<Json[]>): Promise<void> {
  const vars: Vars = new Map();
  for (const [i, call] of v.calls.entries()) {
    match(await play(outbox, tx, call), v.results[i], vars, `result ${i}`);
  }
  const found = await rows();
  assert.equal(found.length, v.rows.length);
  const ids = found.map((r) => Number(r.id));
  assert.equal(new Set(found.map((r) => String(r.token))).size, found.length, "no two tokens are alike");
  for (const [i, row] of found.entries()) {
    const expected = { ...v.rows[i] };
    const actual = rowOf(row, ids);
    const { now_plus_ms: plus } = (expected.due_ms ?? {}) as { now_plus_ms?: number };
    if (plus !== undefined) {
      const ms = Number(actual.due_ms) - Date.now();
      assert.ok(Math.abs(ms - plus) < 60_000, `due in ${ms}`);
      expected.due_ms = actual.due_ms;
    }
    match(actual, expected, vars, `row ${i}`);
  }
}

async function play<Tx>(outbox: Outbox<Tx>, tx: Tx, call: Call): Promise<Json> {
  const spread = call.spread_ms === undefined ? {} : { spread: call.spread_ms };
  try {
    switch (call.do) {
      case "schedule":
        return { ...(await outbox.schedule(tx, call.queue, messageOf(call))) };
      case "schedule_batch": {
        const items = await outbox.scheduleBatch(tx, call.queue, call.messages.map(messageOf));
        return items.map((i) => (i instanceof DelaybridgeError ? errorOf(i) : { ...i })) as unknown as Json;
      }
      case "cancel":
        await outbox.cancel(tx, call.queue, refOf(call));
        return {};
      default:
        await outbox.reschedule(tx, call.queue, refOf(call), dueOf(call), spread);
        return {};
    }
  } catch (error) {
    assert.ok(error instanceof DelaybridgeError, `${error}`);
    return errorOf(error);
  }
}

function errorOf({ code, field, id }: DelaybridgeError): Json {
  return { error: { code, ...(field === undefined ? {} : { field }), ...(id === undefined ? {} : { id }) } };
}

const name = `sdk_${randomBytes(6).toString("hex")}`;

const postgresURL = process.env.DELAYBRIDGE_TEST_POSTGRES_URL;
suite("outbox in PostgreSQL", { skip: postgresURL === undefined && "DELAYBRIDGE_TEST_POSTGRES_URL is not set" }, () => {
  let admin: pg.Client;
  let client: pg.Client;

  before(async () => {
    admin = new pg.Client({ connectionString: postgresURL });
    await admin.connect();
    await admin.query(`CREATE DATABASE ${name}`);
    const url = new URL(postgresURL as string);
    url.pathname = name;
    client = new pg.Client({ connectionString: url.href });
    await client.connect();
    for (const statement of schema("postgres")) {
      await client.query(statement);
    }
  });

  after(async () => {
    await client?.end();
    await admin?.query(`DROP DATABASE IF EXISTS ${name}`);
    await admin?.end();
  });

  for (const v of vectors) {
    test(v.name, async () => {
      await client.query("BEGIN");
      try {
        await check<PostgresTx>(v, postgresOutbox(), client, async () => (await client.query(select)).rows as Json[]);
      } finally {
        await client.query("ROLLBACK");
      }
    });
  }

  test("a row is gone with its transaction, and the error of the database comes through", async () => {
    const outbox = postgresOutbox();
    await client.query("BEGIN");
    await outbox.schedule(client, "orders", { topic: "t", due: 0 });
    await client.query("ROLLBACK");
    assert.equal((await client.query(select)).rowCount, 0);
    const elsewhere = postgresOutbox({ table: "nowhere" });
    await assert.rejects(elsewhere.schedule(client, "orders", { topic: "t", due: 0 }), /nowhere/);
  });
});

const mariadbURL = process.env.DELAYBRIDGE_TEST_MARIADB_URL;
suite("outbox in MariaDB", { skip: mariadbURL === undefined && "DELAYBRIDGE_TEST_MARIADB_URL is not set" }, () => {
  let connection: mysql.Connection;
  let other: mysql.Connection;

  before(async () => {
    const [, user = "", password = "", host = "", port = ""] =
      /^(.*?):(.*)@tcp\((.*):(\d+)\)/.exec(mariadbURL as string) ?? [];
    connection = await mysql.createConnection({ user, password, host, port: Number(port) });
    other = await mysql.createConnection({ user, password, host, port: Number(port) });
    await connection.query(`CREATE DATABASE ${name}`);
    await other.query(`USE ${name}`);
    await connection.query(`USE ${name}`);
    for (const statement of schema("mysql")) {
      await connection.query(statement);
    }
  });

  after(async () => {
    await connection?.query(`DROP DATABASE IF EXISTS ${name}`);
    await other?.end();
    await connection?.end();
  });

  for (const v of vectors) {
    test(v.name, async () => {
      await connection.query("START TRANSACTION");
      try {
        await check<MySQLTx>(v, mysqlOutbox(), connection, async () => (await connection.query(select))[0] as Json[]);
      } finally {
        await connection.query("ROLLBACK");
      }
    });
  }

  for (const due of ["PT1H", "PT0S"]) {
    test(`a duplicate does not make its neighbours wait, due in ${due}`, async () => {
      const outbox = mysqlOutbox();
      const message = { topic: "t", due };
      await outbox.schedule(connection, "orders", { ...message, id: "b" });
      await other.query("SET innodb_lock_wait_timeout = 1");
      try {
        await connection.query("START TRANSACTION");
        await assert.rejects(outbox.schedule(connection, "orders", { ...message, id: "b" }), { code: "duplicate" });
        await other.query("START TRANSACTION");
        for (const id of ["a", "c"]) {
          await outbox.schedule(other, "orders", { ...message, id }); // Else: Lock wait timeout exceeded.
        }
      } finally {
        await other.query("ROLLBACK");
        await connection.query("ROLLBACK");
        await connection.query("DELETE FROM delay_outbox");
      }
    });
  }
});
