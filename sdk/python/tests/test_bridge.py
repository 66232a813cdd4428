"""Schedules by real bridges: make sdk-python builds the program and names it in DELAYBRIDGE_TEST_BRIDGE."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from delaybridge import Batcher, Client, DuplicateError, Message, NotFoundError, ScheduleResult

PATIENCE = 60.0
"""Seconds that what must happen may take; what must not, waits for ever."""


def program() -> str:
    path = os.environ.get("DELAYBRIDGE_TEST_BRIDGE", "")
    if not path:
        if os.environ.get("CI") == "true":
            pytest.fail("DELAYBRIDGE_TEST_BRIDGE is not set")
        pytest.skip("DELAYBRIDGE_TEST_BRIDGE is not set: make sdk-python builds the bridge")
    return path


def free_ports(count: int) -> list[int]:
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in listeners]
    for one in listeners:
        one.close()
    return ports


class Bridges:
    """A bridge that has Redis and NATS in its process, and others beside it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.redis, self.nats, self.admin, *self.others = free_ports(5)
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        ports = {"--redis-port": self.redis, "--nats-port": self.nats, "--admin-port": self.admin}
        self._start(self.admin, ["dev", "--memory", *(f"{name}={port}" for name, port in ports.items())])

    def start_others(self) -> list[str]:
        for port in self.others:
            config = self._folder / f"{port}.yaml"
            config.write_text(
                f"instance: bridge-{port}\n"
                f"redis: {{url: redis://127.0.0.1:{self.redis}/0}}\n"
                "queues: {orders: {sink: nats}}\n"
                f"sinks: {{nats: {{type: nats, url: nats://127.0.0.1:{self.nats}}}}}\n"
                f"admin: {{listen: 127.0.0.1:{port}}}\n"
            )
            self._start(port, ["run", "--config", str(config)])
        return [url(port) for port in self.others]

    def _start(self, port: int, args: list[str]) -> None:
        log = self._folder / f"{port}.log"
        with log.open("wb") as out:
            bridge = subprocess.Popen([program(), *args], stdout=out, stderr=out, cwd=self._folder)
        self._running[port] = bridge
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            assert bridge.poll() is None, log.read_text()
            try:
                if httpx.get(f"{url(port)}/readyz", trust_env=False).is_success:
                    return
            except httpx.TransportError:
                pass
            time.sleep(0.05)
        pytest.fail(log.read_text())

    def kill(self, port: int) -> None:
        self._running[port].send_signal(signal.SIGKILL)
        self._running.pop(port).wait(PATIENCE)

    def advance(self, by: str) -> None:
        moved = httpx.post(f"{url(self.admin)}/dev/clock/advance", json={"by": by}, timeout=PATIENCE, trust_env=False)
        assert moved.is_success, moved.text

    def close(self) -> None:
        for port in list(self._running):
            self.kill(port)


class Consumer:
    """Reads what is published on a subject, by NATS' own text protocol."""

    def __init__(self, port: int, subject: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), PATIENCE)
        self._stream = self._socket.makefile("rb")
        self._socket.sendall(f'CONNECT {{"verbose":false,"headers":true}}\r\nSUB {subject} 1\r\nPING\r\n'.encode())
        while self._stream.readline() != b"PONG\r\n":
            pass

    def read(self) -> dict[str, str]:
        """The headers of the next message."""
        while line := self._stream.readline().decode():
            match line.split():
                case ["PING"]:
                    self._socket.sendall(b"PONG\r\n")
                case ["HMSG", *_, head, size]:
                    data = self._stream.read(int(size) + 2)
                    lines = data[: int(head)].decode().split("\r\n")[1:]
                    return {n.lower(): v.strip() for n, _, v in (one.partition(":") for one in lines) if n}
        raise AssertionError("NATS has gone")

    def close(self) -> None:
        self._stream.close()
        self._socket.close()


def url(port: int) -> str:
    return f"http://127.0.0.1:{port}"


@pytest.fixture
def bridges(tmp_path: Path) -> Iterator[Bridges]:
    started = Bridges(tmp_path)
    try:
        yield started
    finally:
        started.close()


def test_scheduled_message_is_consumed(bridges: Bridges) -> None:
    consumer = Consumer(bridges.nats, "order.timeout")
    with Client(url(bridges.admin)) as client:
        message = Message("order.timeout", after=timedelta(days=30), id="order-42/timeout", key="order-42", body="{}")
        result = client.schedule("orders", message)
        assert (result.id, result.status) == ("order-42/timeout", "created")
        with pytest.raises(DuplicateError) as refused:
            client.schedule("orders", message)
        assert refused.value.due_at == result.due_at
        client.schedule("orders", Message("order.timeout", after=timedelta(days=1), id=".."))
        client.reschedule("orders", "..", after=timedelta(days=2))
        assert client.get("orders", "..").due_at > result.due_at - timedelta(days=28, minutes=10)  # type: ignore[operator]
        assert client.cancel("orders", "..").status == "cancelled"
        bridges.advance("31d")
        assert consumer.read()["delay-id"] == "order-42/timeout"
        with pytest.raises(NotFoundError):
            client.get("orders", "order-42/timeout", key="order-42")
    consumer.close()


def test_no_message_is_lost_when_a_bridge_dies(bridges: Bridges) -> None:
    servers = bridges.start_others()
    consumer = Consumer(bridges.nats, "order.timeout")
    half = threading.Event()
    done: list[Any] = []

    def schedule(client: Client, n: int) -> None:
        done.append(client.schedule("orders", Message("order.timeout", after=timedelta(hours=1), id=f"one-{n}")))
        if len(done) == 200:
            half.set()

    with Client(servers) as client, Batcher(client, "orders", max_messages=20) as batcher:
        dying = bridges.others[client._servers.current]
        with ThreadPoolExecutor(8) as pool:
            calls = [pool.submit(schedule, client, n) for n in range(400)]
            futures = [batcher.add(Message("order.timeout", after=timedelta(hours=1), id=f"b-{n}")) for n in range(400)]
            assert half.wait(PATIENCE)
            bridges.kill(dying)
            bridges.advance("30s")  # The dead bridge's requests are its own for 15 s.
            for call in calls:
                call.result(PATIENCE)
        batcher.flush()
        results: list[ScheduleResult] = [f.result(PATIENCE) for f in futures] + done
        assert client._servers.urls[client._servers.current] != url(dying)
    assert {r.status for r in results} == {"created"}
    bridges.advance("2h")
    found: set[str] = set()
    while len(found) < 800:
        found.add(consumer.read()["delay-id"])
    assert found == {f"{kind}-{n}" for kind in ("one", "b") for n in range(400)}
    consumer.close()
