"""Schedules messages in a transaction of the caller's own database.

If the transaction commits, its messages are published; if it rolls back, they never existed. The calls write rows into
a table that ``bridge outbox migrate up`` makes, and a bridge with that database in its configuration takes them.

    box = Outbox("postgres")
    with psycopg.connect(...) as connection:
        connection.execute("INSERT INTO orders ...")
        box.schedule(connection, "orders", Message("order.timeout", id="order-42", after=timedelta(minutes=30)))

Each call takes what the transaction is open on: a DB-API connection or cursor whose driver writes parameters as ``%s``
(psycopg, psycopg2, pg8000, PyMySQL, mysqlclient, mysql-connector), or a Connection of SQLAlchemy (of a Session, that of
``session.connection()``). The package imports none of them, and never commits.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Literal

from . import _check, _spread, _wire
from .errors import DelaybridgeError, DuplicateError, InvalidError
from .model import Message

Dialect = Literal["postgres", "mysql"]
"""``mysql`` also stands for MariaDB."""

_TABLE = re.compile(r"([a-z_][a-z0-9_]{0,40}\.)?[a-z_][a-z0-9_]{0,40}")
_SCHEDULE, _CANCEL, _RESCHEDULE, _REPLACE = range(4)
_LATEST = 253_402_300_800_000  # The end of the year 9999.
_DIGITS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_OF = " WHERE queue = %s AND message_key = %s AND message_id = %s"


@dataclass(frozen=True)
class Written:
    """What a schedule wrote: ``created``, ``replaced``, or ``existing`` (with ``conflict="keep"``, nothing)."""

    id: str
    key: str
    status: str


class Outbox:
    """Writes rows into the table of one database. It holds no connection, and is safe for threads.

    ``table`` is the one in the bridge's configuration; with its schema and a dot before it, if the session would look
    elsewhere.
    """

    def __init__(self, dialect: Dialect, *, table: str = "delay_outbox") -> None:
        if dialect not in ("postgres", "mysql"):
            raise _check.invalid("dialect", dialect, "postgres or mysql")
        if not _TABLE.fullmatch(table):
            limit = "1 to 41 of a-z 0-9 _, the first no digit; a schema of the same form and a dot may come before"
            raise _check.invalid("table", table, limit)
        self._sql: _Postgres | _MySQL = _Postgres(table) if dialect == "postgres" else _MySQL(table)

    def schedule(self, tx: Any, queue: str, message: Message) -> Written:
        """Writes a message. Raises InvalidError; DuplicateError, if the table has a message of that identity that is
        not published or cancelled, and ``message.conflict`` is neither ``keep`` nor ``replace``; and the database's
        errors. After the first two nothing was written, and the transaction can go on.

        ``replace`` writes a replacement: the bridge cancels the old message first. If the transaction sees a cancel of
        the old one, its own included, the new one follows it whatever ``conflict`` says. ``after`` counts from the
        database's clock at the call. ``max_wait`` is for Client only.
        """
        _check.queue(queue)
        row = _row(message)
        on = _on(tx)
        identity = (queue, row.message.key, row.message.id)
        written = Written(row.message.id, row.message.key, "created")
        if self._sql.insert(on, identity, row):
            return written
        if message.conflict == "replace":
            self._sql.insert_replacement(on, identity, row, None)
            return replace(written, status="replaced")
        if (target := self._sql.cancelled(on, identity)) is not None:
            self._sql.insert_replacement(on, identity, row, target)
            return written
        if message.conflict == "keep":
            return replace(written, status="existing")
        detail = "the outbox has a message of that identity, which is not published or cancelled"
        raise DuplicateError(detail, id=row.message.id)

    def schedule_batch(self, tx: Any, queue: str, messages: Sequence[Message]) -> list[Written | DelaybridgeError]:
        """Writes messages, and returns the outcome of each, by index: what was written, or the InvalidError or
        DuplicateError. They are written in the order of their keys and ids, so that two batches never deadlock."""
        outcomes: dict[int, Written | DelaybridgeError] = {}
        for i in sorted(range(len(messages)), key=lambda i: (messages[i].key.encode(), messages[i].id.encode())):
            try:
                outcomes[i] = self.schedule(tx, queue, messages[i])
            except DelaybridgeError as e:
                outcomes[i] = e
        return [outcomes[i] for i in range(len(messages))]

    def cancel(self, tx: Any, queue: str, id: str, *, key: str = "") -> None:
        """Records that a message is cancelled, whatever its state: the bridge tells in the row whether that came in
        time. Raises InvalidError and the database's errors."""
        self._operate(tx, queue, id, key, _CANCEL, _Due(0))

    def reschedule(
        self,
        tx: Any,
        queue: str,
        id: str,
        *,
        key: str = "",
        after: timedelta | None = None,
        at: datetime | None = None,
        spread: timedelta | None = None,
    ) -> None:
        """Records that a message has a new due time. Its errors are those of cancel."""
        self._operate(tx, queue, id, key, _RESCHEDULE, _due(after, at, _share(key, id, spread)))

    def _operate(self, tx: Any, queue: str, id: str, key: str, op: int, due: _Due) -> None:
        _check.queue(queue)
        _check.identity(id, key)
        self._sql.insert_operation(_on(tx), (queue, key, id), op, due)


@dataclass(frozen=True)
class _Due:
    ms: int
    is_relative: bool = False


@dataclass(frozen=True)
class _Row:
    message: Message
    headers: str | None
    body: bytes
    due: _Due


_Identity = tuple[str, str, str]


def _row(m: Message) -> _Row:
    """Checks a message, and gives it an id if it has none."""
    if m.max_wait is not None:
        raise _check.invalid("max_wait", str(m.max_wait), "the outbox has none; schedule by Client")
    if not m.id:
        m = replace(m, id=_new_id())
    headers = _check.message(m)
    text = json.dumps(headers, ensure_ascii=False, sort_keys=True) if headers else None
    return _Row(m, text, _wire.body_bytes(m.body), _due(m.after, m.at, _share(m.key, m.id, m.spread)))


def _share(key: str, id: str, spread: timedelta | None) -> int:
    """The milliseconds of a spread that the message gets, of whose parts of a millisecond nothing counts."""
    return _spread.share(key, id, spread // timedelta(milliseconds=1)) if spread else 0


def _due(after: timedelta | None, at: datetime | None, more: int) -> _Due:
    if (after is None) == (at is None):
        raise InvalidError("give after or at, and not both", field="due")
    if after is not None:
        return _Due(_wire.milliseconds(after) + more, True)
    assert at is not None
    ms = _wire.instant_ms(at) + more
    if not 0 <= ms < _LATEST:
        raise _check.invalid("due", at.isoformat(), "from 1970 to 9999")
    return _Due(ms)


def _new_id() -> str:
    """A ULID: 48 bits of milliseconds, and 80 by chance."""
    n = (time.time_ns() // 1_000_000 << 80) | int.from_bytes(os.urandom(10), "big")
    return "".join(_DIGITS[n >> 5 * i & 31] for i in reversed(range(26)))


class _Session:
    """A DB-API cursor, or a SQLAlchemy Connection."""

    def __init__(self, execute: Any) -> None:
        self._execute = execute

    def write(self, sql: str, args: Sequence[object]) -> int:
        """Returns how many rows were written."""
        return int(self._execute(sql, tuple(args)).rowcount)

    def number(self, sql: str, args: Sequence[object]) -> int | None:
        """The first column of the first row; None if there is none, or NULL."""
        found = self._execute(sql, tuple(args)).fetchone()
        return None if found is None or found[0] is None else int(found[0])


def _on(tx: Any) -> _Session:
    if hasattr(tx, "exec_driver_sql"):
        return _Session(tx.exec_driver_sql)
    cursor = tx.cursor() if hasattr(tx, "cursor") and callable(tx.cursor) else tx
    if not hasattr(cursor, "execute") or not hasattr(cursor, "fetchone"):
        limit = "a DB-API connection or cursor, or a Connection of SQLAlchemy"
        raise _check.invalid("tx", type(tx).__name__, limit)

    def execute(sql: str, args: tuple[object, ...]) -> Any:
        cursor.execute(sql, args)
        return cursor

    return _Session(execute)


class _SQL:
    """The statements that both dialects have. They are those of delay/outbox."""

    now: str
    duplicate_is_ignored: str
    insert_verb = "INSERT"
    text, number, binary, object_ = "%s", "%s", "%s", "%s"

    def __init__(self, table: str) -> None:
        self.table = table
        self.name = table.rpartition(".")[2]

    def from_live(self) -> str:
        """The live message of an identity, by the unique index."""
        raise NotImplementedError

    def from_operations(self) -> str:
        """The pending operations of an identity."""
        raise NotImplementedError

    def due(self, due: _Due) -> str:
        return f"{self.now} + {self.number}" if due.is_relative else self.number

    def standing(self) -> str:
        """The id of the message that an operation is about: the newest one that lives or will replace it. Its
        arguments are the identity, twice."""
        newest = " ORDER BY id DESC LIMIT 1), 0)"
        return (
            f"SELECT NULLIF(GREATEST(COALESCE((SELECT id{self.from_live()}{newest}, "
            f"COALESCE((SELECT id{self.from_operations()} AND op = {_REPLACE}{newest}), 0)"
        )

    def cancelled(self, on: _Session, identity: _Identity) -> int | None:
        """The id of the standing message, if a cancel of it is pending."""
        sql = f"SELECT target{self.from_operations()} AND op = {_CANCEL} AND target = ({self.standing()}) LIMIT 1"
        return on.number(sql, identity * 3)

    def insert(self, on: _Session, identity: _Identity, row: _Row) -> bool:
        """Inserts a message that replaces none; false if the identity is taken."""
        return self._insert(on, identity, row, _SCHEDULE, None, self.insert_verb, self.duplicate_is_ignored) == 1

    def insert_replacement(self, on: _Session, identity: _Identity, row: _Row, target: int | None) -> None:
        self._insert(on, identity, row, _REPLACE, target, "INSERT", "")

    def _insert(
        self, on: _Session, identity: _Identity, row: _Row, op: int, target: int | None, verb: str, end: str
    ) -> int:
        about = f"{op}, {'NULL' if target is None else target}, FALSE"
        what = f"{self.due(row.due)}, {self.text}, {self.object_}, {self.binary}"
        return on.write(
            f"{verb} INTO {self.table}"
            " (queue, message_key, message_id, op, target, tried, due_ms, topic, headers, body)"
            f" VALUES ({self.text}, {self.text}, {self.text}, {about}, {what}){end}",
            (*identity, row.due.ms, row.message.topic, row.headers, row.body),
        )

    def _insert_about(
        self, on: _Session, identity: _Identity, op: int, due: _Due, target: str, targets: Sequence[object]
    ) -> None:
        on.write(
            f"INSERT INTO {self.table} (queue, message_key, message_id, op, due_ms, revision, target)"
            f" VALUES ({self.text}, {self.text}, {self.text}, {op}, {self.due(due)}, 0, {target})",
            (*identity, due.ms, *targets),
        )


class _Postgres(_SQL):
    now = "CAST(ceil(extract(epoch FROM clock_timestamp()) * 1000) AS bigint)"
    duplicate_is_ignored = " ON CONFLICT (queue, message_key, message_id) WHERE op = 0 AND status IN (0, 1) DO NOTHING"
    # Drivers that bind on the server leave the types to it.
    text, number, binary = "CAST(%s AS text)", "CAST(%s AS bigint)", "CAST(%s AS bytea)"
    object_ = "CAST(CAST(%s AS text) AS jsonb)"

    def from_live(self) -> str:
        return f" FROM {self.table}{_OF} AND op = 0 AND status IN (0, 1)"

    def from_operations(self) -> str:
        return f" FROM {self.table}{_OF} AND op * 1 > 0 AND status * 1 = 0"  # The expressions of the index.

    def insert_operation(self, on: _Session, identity: _Identity, op: int, due: _Due) -> None:
        self._insert_about(on, identity, op, due, f"({self.standing()})", identity * 2)


class _MySQL(_SQL):
    now = "((TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) + 999) DIV 1000)"
    duplicate_is_ignored = ""
    insert_verb = "INSERT IGNORE"  # All values are checked, so it can only ignore duplicates.

    def from_live(self) -> str:
        return f" FROM {self.table} FORCE INDEX ({self.name}_live){_OF} AND live > 0"

    def from_operations(self) -> str:
        return (
            f" FROM {self.table} FORCE INDEX ({self.name}_open){_OF} AND finished_ms IS NULL AND op > 0 AND status = 0"
        )

    def insert(self, on: _Session, identity: _Identity, row: _Row) -> bool:
        # An INSERT that meets a duplicate locks the gap beside it in the unique index, so it first reads without a
        # lock. That is enough for a message that is not due; a due one may have been published since the snapshot.
        sql = f"SELECT CASE WHEN due_ms > {self.now} THEN 0 ELSE id END FROM {self.table}{_OF} AND live = 1"
        found = on.number(sql, identity)
        if found == 0 or (found is not None and on.number(self.present(), (found,)) is not None):
            return False
        return super().insert(on, identity, row)

    def present(self) -> str:
        """Reads the current version of a live row by its number, which locks no gap. It finds nothing where another
        transaction has locked the row, where MySQL before 8.0.22 requires more rights than a producer has, and where
        MariaDB with innodb_snapshot_isolation would end the transaction."""
        return (
            f"SELECT COALESCE(NULL /*!80022 , live */ /*M!100600 , live */) FROM {self.table}"
            f" WHERE id = {self.number} /*M!110402 AND NOT @@innodb_snapshot_isolation */"
            " /*!80022 FOR SHARE SKIP LOCKED */ /*M!100600 LOCK IN SHARE MODE SKIP LOCKED */"
        )

    def insert_operation(self, on: _Session, identity: _Identity, op: int, due: _Due) -> None:
        # A SELECT inside the INSERT would lock what it reads, and so wait for the bridge.
        target = on.number(f"SELECT ({self.standing()})", identity * 2)
        self._insert_about(on, identity, op, due, "%s", (target,))
