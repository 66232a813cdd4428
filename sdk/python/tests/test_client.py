"""What the vectors do not have: connections, tokens, TLS, options, and the Batcher's bounds."""

from __future__ import annotations

import asyncio
import os
import shutil
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from scripted import Scripted

from delaybridge import (
    AsyncBatcher,
    AsyncClient,
    Batcher,
    Client,
    InvalidError,
    Message,
    UnauthorizedError,
    UnavailableError,
)
from delaybridge.aio import _Progress

SOON = Message("t", after=timedelta(seconds=1))
CREATED = {"status": 201, "body": {"id": "a", "key": "", "due_at": "2031-01-31T09:00:00.000Z", "status": "created"}}
PATIENCE = 60


@pytest.fixture
def server() -> Iterator[Scripted]:
    servers = Scripted(1)
    yield servers
    servers.close()


def test_connections_are_kept(server: Scripted) -> None:
    server.script = [{"server": 0, "answer": CREATED}] * 5
    with Client(server.urls) as client:
        for _ in range(5):
            client.schedule("orders", SOON)
        assert len(server._connections[0]) == 1
        assert len({r.headers["idempotency-key"] for r in server.received}) == 5


def test_token_file_is_read_again(server: Scripted, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("token-1\n")
    server.script = [{"server": 0, "answer": CREATED}] * 3
    with Client(server.urls, token_file=file) as client:
        client.schedule("orders", SOON)
        replacement = tmp_path / "new"
        replacement.write_text("token-2\n")
        os.replace(replacement, file)
        client.schedule("orders", SOON)
        file.unlink()
        client.schedule("orders", SOON)
    assert [r.headers["authorization"] for r in server.received] == ["Bearer token-1"] + ["Bearer token-2"] * 2
    with Client(server.urls, token_file=file) as client, pytest.raises(InvalidError, match="token_file"):
        client.schedule("orders", SOON)


@pytest.mark.skipif(not shutil.which("openssl"), reason="no openssl here")
def test_tls(tmp_path: Path) -> None:
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1"]
    made += ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)]
    subprocess.run(made, check=True, capture_output=True)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(cert, key)
    context.load_verify_locations(cert)
    context.verify_mode = ssl.CERT_REQUIRED
    plain = Scripted(1, [{"server": 0, "answer": CREATED}])
    proxy = TLSProxy(context, int(plain.urls[0].rpartition(":")[2]))
    files: dict[str, Any] = {"ca_file": str(cert), "cert_file": str(cert), "key_file": str(key)}
    with Client(proxy.url, **files) as client:
        assert client.schedule("orders", SOON).id == "a"
    with Client(proxy.url, timeout=1.5) as client, pytest.raises(UnavailableError, match="CERTIFICATE_VERIFY_FAILED"):
        client.schedule("orders", SOON)
    proxy.close()
    plain.close()


class TLSProxy:
    """Ends TLS before a server."""

    def __init__(self, context: ssl.SSLContext, port: int) -> None:
        import socket

        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"https://127.0.0.1:{self._listener.getsockname()[1]}"

        def serve() -> None:
            while True:
                try:
                    connection, _ = self._listener.accept()
                except OSError:
                    return
                try:
                    with context.wrap_socket(connection, server_side=True) as outer:
                        request = outer.recv(65536)
                        while b"\r\n\r\n" not in request or not request.endswith(b"}"):
                            request += outer.recv(65536)
                        with socket.create_connection(("127.0.0.1", port)) as inner:
                            inner.sendall(request)
                            outer.sendall(inner.recv(65536))
                except OSError:
                    pass

        self._thread = threading.Thread(target=serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        import socket

        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(10)


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("servers", lambda: Client([])),
        ("servers", lambda: Client("127.0.0.1:8080")),
        ("timeout", lambda: Client("http://a", timeout=0)),
        ("token_file", lambda: Client("http://a", token="x", token_file="y")),
        ("queue", lambda: Client("http://a").schedule("", SOON)),
        ("id", lambda: Client("http://a").cancel("orders", "")),
        ("at", lambda: Client("http://a").schedule("orders", Message("t", at=datetime(2031, 1, 1)))),
        ("body", lambda: Client("http://a").schedule("orders", Message("t", after=timedelta(), body="\ud800"))),
        ("messages", lambda: Client("http://a").schedule_batch("orders", [SOON] * 1001)),
        ("Idempotency-Key", lambda: Client("http://a").schedule("orders", SOON, idempotency_key="ü")),
        ("max_messages", lambda: Batcher(Client("http://a"), "orders", max_messages=1001)),
        ("max_pending", lambda: Batcher(Client("http://a"), "orders", max_pending=0)),
    ],
)
def test_invalid(field: str, wrong: Callable[[], object]) -> None:
    with pytest.raises(InvalidError) as refused:
        wrong()
    assert refused.value.field == field
    assert refused.value.status is None


def test_a_call_ends_in_time() -> None:
    with Client("http://127.0.0.1:1", timeout=0.3) as client, pytest.raises(UnavailableError):
        client.get("orders", "a")


class Gate:
    """A way to the bridge that is closed until it is opened, and counts the messages that pass."""

    def __init__(self) -> None:
        self.is_open = threading.Event()
        self.begun = threading.Event()
        self.requests: list[int] = []

    def client(self) -> Client:
        return Client("http://fake", http=httpx.Client(transport=httpx.MockTransport(self._answer)))

    def _answer(self, request: httpx.Request) -> httpx.Response:
        self.begun.set()
        assert self.is_open.wait(PATIENCE)
        count = request.content.count(b'"topic"')
        self.requests.append(count)
        return httpx.Response(200, json={"results": [CREATED["body"]] * count})


def test_a_full_batcher_waits_and_drops_nothing() -> None:
    gate = Gate()
    with Batcher(gate.client(), "orders", max_messages=2, max_pending=4) as batcher:
        futures = [batcher.add(SOON) for _ in range(4)]
        with pytest.raises(TimeoutError):
            batcher.add(SOON, timeout=0.01)
        late: list[Any] = []
        waiting = threading.Thread(target=lambda: late.append(batcher.add(SOON)))
        waiting.start()
        gate.is_open.set()
        waiting.join(PATIENCE)
        batcher.flush()
        assert all(f.done() for f in futures + late)
    assert gate.requests == [2, 2, 1]
    with pytest.raises(RuntimeError):
        batcher.add(SOON)


def test_a_cancelled_future_is_not_sent() -> None:
    gate = Gate()
    with Batcher(gate.client(), "orders", max_messages=2) as batcher:
        futures = [batcher.add(SOON) for _ in range(4)]
        assert gate.begun.wait(PATIENCE)
        assert not futures[0].cancel(), "its request has left"
        assert futures[2].cancel()
        gate.is_open.set()
    assert gate.requests == [2, 1]


def test_batcher_fails_each_message_with_its_request() -> None:
    with Client("http://127.0.0.1:1", timeout=0.2) as client, Batcher(client, "orders") as batcher:
        futures = [batcher.add(SOON) for _ in range(3)]
    for f in futures:
        assert isinstance(f.exception(), UnavailableError)


def test_batcher_sends_after_its_linger(server: Scripted) -> None:
    server.script = [{"server": 0, "answer": {"status": 200, "body": {"results": [CREATED["body"]]}}}]
    with Client(server.urls) as client, Batcher(client, "orders", linger=0.01) as batcher:
        assert batcher.add(SOON).result(PATIENCE).id == "a"


def test_batcher_is_closed_at_exit(server: Scripted) -> None:
    server.script = [{"server": 0, "answer": {"status": 200, "body": {"results": [CREATED["body"]]}}}]
    program = (
        "import datetime, delaybridge\n"
        f"batcher = delaybridge.Batcher(delaybridge.Client({server.urls!r}), 'orders', linger=60)\n"
        "batcher.add(delaybridge.Message('t', after=datetime.timedelta(0)))\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=PATIENCE)
    assert len(server.received) == 1


def test_async_batcher() -> None:
    sent: list[int] = []

    async def answer(request: httpx.Request) -> httpx.Response:
        await asyncio.sleep(0)
        sent.append(request.content.count(b'"topic"'))
        return httpx.Response(200, json={"results": [CREATED["body"]] * sent[-1]})

    async def run() -> None:
        http = httpx.AsyncClient(transport=httpx.MockTransport(answer))
        client = AsyncClient("http://fake", http=http)
        async with AsyncBatcher(client, "orders", max_messages=2, max_pending=3, linger=0.01) as batcher:
            futures = [await batcher.add(SOON) for _ in range(7)]
            await batcher.flush()
            assert all(f.result().id == "a" for f in futures)
        with pytest.raises(RuntimeError):
            await batcher.add(SOON)
        await http.aclose()

    asyncio.run(run())
    assert sum(sent) == 7
    assert max(sent) == 2


def test_async_batcher_tells_errors() -> None:
    async def run() -> None:
        async with AsyncClient("http://127.0.0.1:1", timeout=0.2) as client:
            async with AsyncBatcher(client, "orders") as batcher:
                future = await batcher.add(SOON)
            with pytest.raises(UnavailableError):
                await future

    asyncio.run(run())


def test_a_connection_that_is_not_made_in_time_has_changed_nothing() -> None:
    """A listener whose backlog is full does not answer."""
    import socket

    listener = socket.create_server(("127.0.0.1", 0), backlog=0)
    address = listener.getsockname()
    fillers = [socket.socket() for _ in range(3)]
    for one in fillers:
        one.setblocking(False)
        one.connect_ex(address)

    async def run() -> None:
        async with AsyncClient(f"http://127.0.0.1:{address[1]}", timeout=0.3, attempt_timeout=0.2) as client:
            with pytest.raises(UnavailableError):
                await client.schedule("orders", SOON)

    asyncio.run(run())
    with (
        Client(f"http://127.0.0.1:{address[1]}", timeout=0.3, attempt_timeout=0.2) as client,
        pytest.raises(UnavailableError),
    ):
        client.schedule("orders", SOON)
    for one in [listener, *fillers]:
        one.close()


@pytest.mark.parametrize(
    ("events", "was_sent"),
    [
        (["connection.connect_tcp.started"], False),
        (["connection.connect_tcp.started", "connection.start_tls.started"], False),
        (["connection.connect_tcp.complete", "http11.send_request_headers.started"], True),
        (["http11.send_request_headers.started"], True),
        ([], True),
    ],
)
def test_progress(events: list[str], was_sent: bool) -> None:
    progress = _Progress()
    for event in events:
        asyncio.run(progress.note(event, None))
    assert progress.was_sent == was_sent


def test_the_token_is_in_no_error(server: Scripted) -> None:
    problem = {"title": "Unauthorized", "status": 401, "code": "unauthorized", "detail": "the token is not known"}
    server.script = [{"server": 0, "answer": {"status": 401, "body": problem}}]
    with Client(server.urls, token="secret-token-1") as client, pytest.raises(UnauthorizedError) as refused:
        client.schedule("orders", SOON)
    assert "secret" not in repr(refused.value) + str(refused.value)
