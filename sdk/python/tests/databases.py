"""Databases for tests, from the servers that DELAYBRIDGE_TEST_*_URL names."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

SCHEMAS = Path(__file__).parents[3] / "delay" / "outbox" / "schema"


def statements(dialect: str) -> Iterator[str]:
    """The migrations' statements, for the table box."""
    for file in sorted((SCHEMAS / dialect).glob("*.sql")):
        up = file.read_text().partition("-- +goose Up\n")[2].partition("-- +goose Down\n")[0]
        up = re.sub(r"^\s*--.*$", "", up, flags=re.M).replace("app.delay_outbox", "box").replace("delay_outbox", "box")
        yield from (s for s in (part.strip() for part in re.split(r";\n", up)) if s)


def server(kind: str) -> str:
    url = os.environ.get(f"DELAYBRIDGE_TEST_{kind}_URL", "")
    if not url:
        if os.environ.get("CI") == "true":
            pytest.fail(f"DELAYBRIDGE_TEST_{kind}_URL is not set")
        pytest.skip(f"DELAYBRIDGE_TEST_{kind}_URL is not set: make sdk-python sets it")
    return url


@contextmanager
def postgres() -> Iterator[tuple[Any, str]]:
    """A connection of psycopg to a new database with the table, and its URL."""
    import psycopg

    url, name = server("POSTGRES"), f"test_{secrets.token_hex(8)}"
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name}")
        try:
            own = re.sub(r"/[^/?]*(\?|$)", rf"/{name}\1", url)
            with psycopg.connect(own, autocommit=True) as connection:
                for s in statements("postgres"):
                    connection.execute(s)
                connection.autocommit = False
                yield connection, own
        finally:
            admin.execute(f"DROP DATABASE {name} WITH (FORCE)")


@contextmanager
def mariadb() -> Iterator[tuple[Any, str]]:
    """A connection of PyMySQL to a new database with the table, and its URL for SQLAlchemy."""
    import pymysql  # type: ignore[import-untyped]

    dsn = re.fullmatch(r"(.*):(.*)@tcp\((.*):(\d+)\)/.*", server("MARIADB"))
    assert dsn
    user, password, host, port = dsn.groups()
    name = f"test_{secrets.token_hex(8)}"
    connection = pymysql.connect(host=host, port=int(port), user=user, password=password, charset="utf8mb4")
    try:
        with connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {name}")
            connection.select_db(name)
            for s in statements("mysql"):
                cursor.execute(s)
        yield connection, f"mysql+pymysql://{user}:{password}@{host}:{port}/{name}?charset=utf8mb4"
    finally:
        connection.rollback()
        with connection.cursor() as cursor:
            cursor.execute(f"DROP DATABASE {name}")
        connection.close()
