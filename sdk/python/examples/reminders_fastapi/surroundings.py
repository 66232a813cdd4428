"""What the application needs around it: a database, and a bridge with NATS."""

from __future__ import annotations

import os
import re
import secrets
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import httpx
import psycopg


@dataclass(frozen=True)
class Surroundings:
    dsn: str
    nats: str
    bridge: str
    """The address for clients."""

    def advance(self, by: timedelta) -> None:
        """Moves the bridge's clock: what becomes due is published at its due time."""
        url, ms = f"{self.bridge}/dev/clock/advance", by // timedelta(milliseconds=1)
        httpx.post(url, json={"by": f"{ms}ms"}, timeout=60, trust_env=False).raise_for_status()


@contextmanager
def surroundings() -> Iterator[Surroundings]:
    """A database of its own at the server that DELAYBRIDGE_TEST_POSTGRES_URL names, and before it the program that
    DELAYBRIDGE_TEST_BRIDGE names, with a Redis and a NATS of its own."""
    server, program = os.environ["DELAYBRIDGE_TEST_POSTGRES_URL"], os.environ["DELAYBRIDGE_TEST_BRIDGE"]
    name = f"reminders_{secrets.token_hex(8)}"
    dsn = re.sub(r"/[^/?]*(\?|$)", rf"/{name}\1", server)
    with psycopg.connect(server, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name}")
        try:
            with _bridge(program, dsn) as started:
                yield started
        finally:
            admin.execute(f"DROP DATABASE {name} WITH (FORCE)")


@contextmanager
def _bridge(program: str, dsn: str) -> Iterator[Surroundings]:
    command = [program, "dev", "--memory", "--outbox", dsn]
    # In a session of its own, a Ctrl-C does not reach it: it ends after the application.
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    ) as bridge:
        assert bridge.stdout
        reader = threading.Thread(target=bridge.stdout.read)  # So that it never waits for us.
        try:
            said = ""
            while "Ctrl-C ends it" not in said:
                line = bridge.stdout.readline()
                said += line
                if not line:
                    raise RuntimeError(f"the bridge did not start:\n{said}")
            reader.start()
            find = [r"NATS\s+(nats://\S+)", r"Console\s+(http://[^/\s]+)/", r"Folder\s+(\S+)"]
            nats, address, folder = (found[1] for found in (re.search(one, said) for one in find) if found)
            subprocess.run([program, "outbox", "migrate", "up", "--config", f"{folder}/bridge.yaml"], check=True)
            yield Surroundings(dsn, nats, address)
        finally:
            bridge.terminate()
            if reader.ident:
                reader.join()
