/**
 * Schedules messages in a transaction of your own database: if it commits, they are published; if it rolls back, they
 * never existed.
 *
 * @packageDocumentation
 */
import { DelaybridgeError, errorOf, invalid } from "./errors.js";
import { checkQueue, checkRef, defaultMaxSize, type Stored, store } from "./limits.js";
import { type Message, type Ref, refOf } from "./message.js";
import { spreadMs } from "./spread.js";
import { type Due, type DueMs, type Duration, dueMs, durationMs } from "./time.js";

export type { Conflict, Late, Message, Ref } from "./message.js";
export type { Due, Duration } from "./time.js";

/** A client of PostgreSQL in a transaction, such as that of pg. */
export interface PostgresTx {
  query(text: string, params: unknown[]): Promise<{ rows: unknown[] }>;
}

/** A connection of MySQL or MariaDB in a transaction, such as that of mysql2/promise. */
export interface MySQLTx {
  execute(sql: string, params: (string | number | Uint8Array | null)[]): Promise<[unknown, ...unknown[]]>;
}

/** What an outbox is made of. */
export interface OutboxOptions {
  /** The table's name, as in the bridge's configuration: `delay_outbox` by default, or `schema.delay_outbox`. */
  table?: string;
  /** The size limit of a message in bytes; 960 KiB by default. The bridge refuses rows beyond the queue's own limit. */
  maxSize?: number;
}

/** What a schedule has written. */
export interface Written {
  readonly id: string;
  readonly key: string;
  /** `existing`: a message of that identity is in the table, and nothing was written. */
  readonly status: "created" | "replaced" | "existing";
}

type Param = string | number | Uint8Array | null;

/** What the databases say in different ways. A question mark is a parameter. */
interface Dialect<Tx> {
  /** The database's clock in milliseconds since 1970, rounded up. */
  readonly now: string;
  /** Parameters of these types. */
  readonly text: string;
  readonly number: string;
  readonly json: string;
  readonly bytes: string;
  /** Where an identity's live messages are, and its pending operations. */
  live(table: string): string;
  operations(table: string): string;
  /** Around an INSERT that leaves out a message whose identity is taken. */
  readonly insertMessage: string;
  readonly unlessTaken: string;
  /** Runs a query of one value, and returns that; null if there is no row. */
  value(tx: Tx, query: string, params: Param[]): Promise<number | null>;
  /** Runs an INSERT, and returns whether it has written a row. */
  insert(tx: Tx, query: string, params: Param[]): Promise<boolean>;
}

const ofIdentity = "WHERE queue = ? AND message_key = ? AND message_id = ?";
const nameOf = (table: string): string => table.slice(table.indexOf(".") + 1);

/** Writes question marks as PostgreSQL's parameters. */
function numbered(query: string): string {
  let n = 0;
  return query.replace(/\?/g, () => `$${++n}`);
}

const postgres: Dialect<PostgresTx> = {
  now: "CAST(ceil(extract(epoch FROM clock_timestamp()) * 1000) AS bigint)",
  text: "CAST(? AS text)",
  number: "CAST(? AS bigint)",
  json: "CAST(CAST(? AS text) AS jsonb)",
  bytes: "CAST(? AS bytea)",
  live: (table) => ` FROM ${table} ${ofIdentity} AND op = 0 AND status IN (0, 1)`,
  // The expressions of the index.
  operations: (table) => ` FROM ${table} ${ofIdentity} AND op * 1 > 0 AND status * 1 = 0`,
  insertMessage: "INSERT INTO",
  unlessTaken: " ON CONFLICT (queue, message_key, message_id) WHERE op = 0 AND status IN (0, 1) DO NOTHING",
  async value(tx, query, params) {
    const { rows } = await tx.query(numbered(query), params);
    const [row] = rows as Record<string, string | number | null>[];
    return row === undefined ? null : numberOf(Object.values(row)[0]);
  },
  async insert(tx, query, params) {
    const { rows } = await tx.query(numbered(`${query} RETURNING 1`), params);
    return rows.length > 0;
  },
};

const mysql: Dialect<MySQLTx> = {
  now: "((TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) + 999) DIV 1000)",
  text: "?",
  number: "?",
  json: "?",
  bytes: "?",
  live: (table) => ` FROM ${table} FORCE INDEX (${nameOf(table)}_live) ${ofIdentity} AND live > 0`,
  operations: (table) =>
    ` FROM ${table} FORCE INDEX (${nameOf(table)}_open) ${ofIdentity} AND finished_ms IS NULL AND op > 0 AND status = 0`,
  // All values are checked, so IGNORE can only ignore duplicates.
  insertMessage: "INSERT IGNORE INTO",
  unlessTaken: "",
  async value(tx, query, params) {
    const [rows] = await tx.execute(query, params);
    const [row] = rows as (Record<string, string | number | null> | (string | number | null)[])[];
    return row === undefined ? null : numberOf(Object.values(row)[0]);
  },
  async insert(tx, query, params) {
    const [result] = await tx.execute(query, params);
    return (result as { affectedRows: number }).affectedRows > 0;
  },
};

/** A bigint of the database, which drivers return as text or as a number. */
const numberOf = (value: string | number | bigint | null | undefined): number | null =>
  value === null || value === undefined ? null : Number(value);

/** How the table names the operations. */
const op = { schedule: 0, cancel: 1, reschedule: 2, replace: 3 };

/** The latest due time: the end of the year 9999. */
const latestMs = Date.UTC(10000, 0);

/**
 * Writes rows into the table that `bridge outbox migrate up` makes; a bridge with that database in its configuration
 * brings them to Redis. It holds no connection. Every call runs in the transaction that it is given, and neither commits
 * it nor rolls it back. All calls reject with an InvalidError, with a DuplicateError, or with the error of the database.
 *
 *     const outbox = postgresOutbox();
 *     await client.query("BEGIN");
 *     await client.query("INSERT INTO orders …");
 *     const { id } = await outbox.schedule(client, "orders", { topic: "order.timeout", due: "PT30M" });
 *     await client.query("COMMIT");
 */
export class Outbox<Tx> {
  readonly #dialect: Dialect<Tx>;
  readonly #table: string;
  readonly #maxSize: number;

  /** @internal Use `postgresOutbox` or `mysqlOutbox`. */
  constructor(dialect: unknown, { table = "delay_outbox", maxSize = defaultMaxSize }: OutboxOptions) {
    if (!/^([a-z_][a-z0-9_]{0,40}\.)?[a-z_][a-z0-9_]{0,40}$/.test(table)) {
      throw invalid(
        "table",
        table,
        "1 to 41 of a-z 0-9 _, the first no digit; a schema of the same form and a dot may come before",
      );
    }
    if (!(maxSize > 0)) {
      throw invalid("maxSize", maxSize, "1 byte or more");
    }
    this.#dialect = dialect as Dialect<Tx>;
    this.#table = table;
    this.#maxSize = maxSize;
  }

  /**
   * Writes a message. A delay counts from the database's clock at the call.
   *
   * The table alone decides whether the identity is taken, by a message that is neither published nor cancelled. After a
   * cancel in the table, the transaction's own included, the new message follows the cancelled one, whatever `conflict` says.
   */
  async schedule(tx: Tx, queue: string, message: Message): Promise<Written> {
    checkQueue(queue);
    const { conflict = "reject", maxWait, spread } = message;
    if (!["reject", "keep", "replace"].includes(conflict)) {
      throw invalid("conflict", conflict, "reject, keep or replace");
    }
    if (maxWait !== undefined) {
      throw invalid("max_wait", maxWait, "only a bridge debounces: use Client");
    }
    const m = store(message, this.#maxSize);
    const due = checkedDue(message.due, m, spread);
    const { id, key } = m;
    if (!(await this.#isTaken(tx, queue, m)) && (await this.#insert(tx, queue, m, due, op.schedule, null))) {
      return { id, key, status: "created" };
    }
    if (conflict === "replace") {
      await this.#insert(tx, queue, m, due, op.replace, null);
      return { id, key, status: "replaced" };
    }
    const cancelled = await this.#cancelled(tx, queue, m);
    if (cancelled !== null) {
      await this.#insert(tx, queue, m, due, op.replace, cancelled);
      return { id, key, status: "created" };
    }
    if (conflict === "keep") {
      return { id, key, status: "existing" };
    }
    throw errorOf("duplicate", "the outbox has a message of that identity, which is not published or cancelled", {
      id,
    });
  }

  /** `schedule` for several messages, each for itself: an item of the results, by index, is what was written or its error. */
  async scheduleBatch(tx: Tx, queue: string, messages: readonly Message[]): Promise<(Written | DelaybridgeError)[]> {
    const results = new Array<Written | DelaybridgeError>(messages.length);
    // In the order of their identities, so that two batches do not deadlock.
    const order = messages.map((m, i) => ({ i, by: Buffer.from(`${m.key ?? ""}\0${m.id ?? ""}`) }));
    order.sort((a, b) => Buffer.compare(a.by, b.by));
    for (const { i } of order) {
      try {
        results[i] = await this.schedule(tx, queue, messages[i] as Message);
      } catch (error) {
        if (!(error instanceof DelaybridgeError)) {
          throw error;
        }
        results[i] = error;
      }
    }
    return results;
  }

  /** Writes that a message is cancelled, whatever its state. The row tells afterwards whether it came in time. */
  async cancel(tx: Tx, queue: string, ref: Ref | string): Promise<void> {
    await this.#operate(tx, queue, op.cancel, refOf(ref), { isDelay: false, ms: 0 });
  }

  /** Writes that a message has a new due time. The row tells afterwards whether it came in time. */
  async reschedule(
    tx: Tx,
    queue: string,
    ref: Ref | string,
    due: Due,
    options: { spread?: Duration } = {},
  ): Promise<void> {
    const { id, key = "" } = refOf(ref);
    await this.#operate(tx, queue, op.reschedule, { id, key }, checkedDue(due, { id, key }, options.spread));
  }

  async #operate(tx: Tx, queue: string, code: number, { id, key = "" }: Ref, due: DueMs): Promise<void> {
    checkQueue(queue);
    checkRef({ id, key });
    const { text } = this.#dialect;
    // MySQL would lock what a SELECT inside of the INSERT reads, and so wait for the bridge.
    const target = await this.#dialect.value(tx, this.#standing(), [queue, key, id, queue, key, id]);
    await this.#dialect.insert(
      tx,
      `INSERT INTO ${this.#table} (queue, message_key, message_id, op, due_ms, target) ` +
        `VALUES (${text}, ${text}, ${text}, ${code}, ${this.#due(due)}, ${target ?? "NULL"})`,
      [queue, key, id, due.ms],
    );
  }

  /** Writes a message's row, and returns whether it is there: not, if its identity is taken. */
  async #insert(tx: Tx, queue: string, m: Stored, due: DueMs, code: number, target: number | null): Promise<boolean> {
    const { text, json, bytes, insertMessage, unlessTaken } = this.#dialect;
    const mayBeTaken = code === op.schedule;
    return this.#dialect.insert(
      tx,
      `${mayBeTaken ? insertMessage : "INSERT INTO"} ${this.#table} ` +
        "(queue, message_key, message_id, op, target, due_ms, topic, headers, body) " +
        `VALUES (${text}, ${text}, ${text}, ${code}, ${target ?? "NULL"}, ${this.#due(due)}, ${text}, ${json}, ${bytes})` +
        (mayBeTaken ? unlessTaken : ""),
      [
        queue,
        m.key,
        m.id,
        due.ms,
        m.topic,
        Object.keys(m.headers).length > 0 ? JSON.stringify(m.headers) : null,
        Buffer.from(m.body.buffer, m.body.byteOffset, m.body.byteLength),
      ],
    );
  }

  /**
   * Whether MySQL has a message of the identity: an INSERT that meets a duplicate locks its neighbours in the index until
   * the transaction ends. A plain read suffices for a message that is not due. A due one may have been published since the
   * transaction's snapshot, so its current version is read by its number, which locks no gap. That read finds nothing where
   * another transaction has locked the row, where MySQL before 8.0.22 requires more rights than a producer has, and where
   * MariaDB with innodb_snapshot_isolation would end the transaction; then the INSERT knows.
   */
  async #isTaken(tx: Tx, queue: string, m: Stored): Promise<boolean> {
    if ((this.#dialect as unknown) !== mysql) {
      return false;
    }
    const live = `SELECT CASE WHEN due_ms > ${this.#dialect.now} THEN 0 ELSE id END FROM ${this.#table} ${ofIdentity} AND live = 1`;
    const found = await this.#dialect.value(tx, live, [queue, m.key, m.id]);
    if (found === null || found === 0) {
      return found === 0;
    }
    const present =
      `SELECT COALESCE(NULL /*!80022 , live */ /*M!100600 , live */) FROM ${this.#table} ` +
      "WHERE id = ? /*M!110402 AND NOT @@innodb_snapshot_isolation */" +
      " /*!80022 FOR SHARE SKIP LOCKED */ /*M!100600 LOCK IN SHARE MODE SKIP LOCKED */";
    return (await this.#dialect.value(tx, present, [found])) !== null;
  }

  /** The row of the identity's message that a pending cancel is about; null if there is none. */
  #cancelled(tx: Tx, queue: string, { id, key }: Stored): Promise<number | null> {
    const { operations } = this.#dialect;
    const query = `SELECT target${operations(this.#table)} AND op = ${op.cancel} AND target = (${this.#standing()}) LIMIT 1`;
    return this.#dialect.value(tx, query, [queue, key, id, queue, key, id, queue, key, id]);
  }

  /** Selects the row of the message that an operation is about: the newest one that lives or will replace it. */
  #standing(): string {
    const newest = " ORDER BY id DESC LIMIT 1), 0)";
    const { live, operations } = this.#dialect;
    return (
      `SELECT NULLIF(GREATEST(COALESCE((SELECT id${live(this.#table)}${newest}, ` +
      `COALESCE((SELECT id${operations(this.#table)} AND op = ${op.replace}${newest}), 0)`
    );
  }

  #due({ isDelay }: DueMs): string {
    const { now, number } = this.#dialect;
    return isDelay ? `${now} + ${number}` : number;
  }
}

function checkedDue(due: Due, { id, key }: { id: string; key: string }, spread: Duration | undefined): DueMs {
  const { isDelay, ms } = dueMs(due);
  if (!isDelay && (ms < 0 || ms >= latestMs)) {
    throw invalid("due", String(due), "from 1970 to 9999");
  }
  return { isDelay, ms: ms + (spread === undefined ? 0 : spreadMs(key, id, durationMs("spread", spread))) };
}

/** An outbox in PostgreSQL. */
export const postgresOutbox = (options: OutboxOptions = {}): Outbox<PostgresTx> => new Outbox(postgres, options);

/** An outbox in MySQL or MariaDB. */
export const mysqlOutbox = (options: OutboxOptions = {}): Outbox<MySQLTx> => new Outbox(mysql, options);
