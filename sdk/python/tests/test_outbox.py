"""Plays the vectors of the outbox in real databases, by the drivers that people use."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Literal

import databases
import neutral
import pytest

from delaybridge import DelaybridgeError, DuplicateError, InvalidError, Message
from delaybridge.outbox import Outbox

Object = dict[str, Any]
COLUMNS = "id, queue, message_key, message_id, op, target, tried, token, revision, due_ms, topic, headers, body"


@contextmanager
def psycopg_connection() -> Iterator[tuple[Any, Any]]:
    with databases.postgres() as (connection, _):
        yield connection, connection


@contextmanager
def psycopg_cursor() -> Iterator[tuple[Any, Any]]:
    with databases.postgres() as (connection, _), connection.cursor() as cursor:
        yield cursor, connection


@contextmanager
def pymysql_connection() -> Iterator[tuple[Any, Any]]:
    with databases.mariadb() as (connection, _):
        yield connection, connection


@contextmanager
def alchemy(url: str) -> Iterator[Any]:
    import sqlalchemy

    engine = sqlalchemy.create_engine(url)
    with engine.connect() as connection:
        yield connection
    engine.dispose()


@contextmanager
def alchemy_postgres() -> Iterator[tuple[Any, Any]]:
    with databases.postgres() as (_, url), alchemy(url.replace("postgres://", "postgresql+psycopg://")) as connection:
        yield connection, connection.connection


@contextmanager
def alchemy_mariadb() -> Iterator[tuple[Any, Any]]:
    with databases.mariadb() as (_, url), alchemy(url) as connection:
        yield connection, connection.connection


WAYS: dict[str, tuple[Literal["postgres", "mysql"], Any]] = {
    "psycopg connection": ("postgres", psycopg_connection),
    "psycopg cursor": ("postgres", psycopg_cursor),
    "pymysql": ("mysql", pymysql_connection),
    "sqlalchemy psycopg": ("postgres", alchemy_postgres),
    "sqlalchemy pymysql": ("mysql", alchemy_mariadb),
}


def write(box: Outbox, tx: Any, c: Object) -> Object:
    """Makes a call of a vector, and returns its result in neutral form."""
    key = c.get("key", "")
    due: Object = {"spread": neutral.duration(c, "spread_ms")} if c["do"] == "reschedule" else {}
    due |= {"after": neutral.duration(c, "in_ms"), "at": neutral.instant(c["at"]) if "at" in c else None}
    try:
        match c["do"]:
            case "cancel":
                box.cancel(tx, c["queue"], c["id"], key=key)
            case "reschedule":
                box.reschedule(tx, c["queue"], c["id"], key=key, **due)
            case _:
                written = box.schedule(tx, c["queue"], neutral.message(c))
                return {"id": written.id, "key": written.key, "status": written.status}
    except DelaybridgeError as e:
        told = {"code": e.code, "field": e.field, "id": e.id}
        return {"error": {n: v for n, v in told.items() if v is not None}}
    return {}


def rows(cursor: Any) -> list[Object]:
    cursor.execute(f"SELECT {COLUMNS} FROM box ORDER BY id")
    found = [dict(zip(COLUMNS.split(", "), row, strict=True)) for row in cursor.fetchall()]
    ids = [row.pop("id") for row in found]
    tokens = [text(row.pop("token")) for row in found]
    assert all(re.fullmatch("~.{15}", t) for t in tokens)
    assert len(set(tokens)) == len(tokens)
    for row in found:
        for name in ("queue", "message_key", "message_id", "topic"):
            row[name] = text(row[name])
        row["target"] = None if row["target"] is None else ids.index(row["target"])
        row["tried"] = bool(row["tried"])
        row["headers"] = json.loads(row["headers"]) if isinstance(row["headers"], str) else row["headers"]
        row["body"] = base64.b64encode(bytes(row["body"])).decode()
    return found


def text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value


@pytest.mark.parametrize("way", WAYS)
def test_vectors(way: str) -> None:
    dialect, connect = WAYS[way]
    box = Outbox(dialect, table="box")
    clock = {
        "postgres": "SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint",
        "mysql": "SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) DIV 1000",
    }
    with connect() as (tx, plain):
        for v in neutral.read("outbox.json"):  # One after the other, since they share the table.
            cursor = plain.cursor()
            cursor.execute("DELETE FROM box")
            results = [write(box, tx, c) for c in v["calls"]]
            found = rows(cursor)
            ids = {"$ID": found[0]["message_id"]} if "$ID" in json.dumps(v["rows"]) else {}
            assert all(re.fullmatch("[0-9A-HJKMNP-TV-Z]{26}", i) for i in ids.values())
            want = json.loads(json.dumps(v).replace("$ID", ids.get("$ID", "")))
            assert results == want["results"], v["name"]
            cursor.execute(clock[dialect])
            now = cursor.fetchone()[0]
            for row, wanted in zip(found, want["rows"], strict=True):
                if isinstance(wanted["due_ms"], dict):
                    assert abs(row["due_ms"] - now - wanted["due_ms"]["now_plus_ms"]) < 60_000
                    wanted["due_ms"] = row["due_ms"]
                assert row == wanted, v["name"]
            cursor.close()


def test_rollback_leaves_nothing() -> None:
    box = Outbox("postgres", table="box")
    with databases.postgres() as (connection, _):
        box.schedule(connection, "orders", neutral.message({"topic": "t", "in_ms": 0}))
        connection.rollback()
        assert rows(connection.cursor()) == []


def test_batch_tells_each_outcome() -> None:
    box = Outbox("postgres", table="box")
    with databases.postgres() as (connection, _):
        list = [neutral.message({"topic": "t", "id": i, "in_ms": 0}) for i in ("b", "a", " ", "a")]
        outcomes = box.schedule_batch(connection, "orders", list)
        assert [getattr(o, "status", None) or getattr(o, "code", None) for o in outcomes] == [
            "created",
            "created",
            "invalid",
            "duplicate",
        ]
        assert [r["message_id"] for r in rows(connection.cursor())] == ["a", "b"]


def test_options() -> None:
    for wrong in ({"dialect": "sqlite"}, {"dialect": "postgres", "table": "Box"}):
        with pytest.raises(InvalidError):
            Outbox(**wrong)  # type: ignore[arg-type]
    box = Outbox("postgres")
    with pytest.raises(InvalidError, match="tx"):
        box.schedule(object(), "orders", neutral.message({"topic": "t", "in_ms": 0}))
    large = Message("t", body=b"x" * (960 << 10), after=timedelta())
    with pytest.raises(InvalidError, match="983040"):
        box.schedule(object(), "orders", large)


@pytest.mark.parametrize("hours", [1, 0])
def test_a_duplicate_makes_no_other_identity_wait(hours: int) -> None:
    """In MySQL, an INSERT that meets a duplicate locks its neighbours in the index."""
    import sqlalchemy

    box = Outbox("mysql", table="box")
    with databases.mariadb() as (connection, url):
        for id in ("b", "d"):
            box.schedule(connection, "orders", Message("t", id=id, after=timedelta(hours=hours)))
        connection.commit()
        with pytest.raises(DuplicateError):
            box.schedule(connection, "orders", Message("t", id="d", after=timedelta(hours=1)))
        engine = sqlalchemy.create_engine(url)
        with engine.connect() as other:
            other.exec_driver_sql("SET innodb_lock_wait_timeout = 1")
            for id in ("a", "c", "e"):
                box.schedule(other, "orders", Message("t", id=id, after=timedelta(hours=1)))
        engine.dispose()
