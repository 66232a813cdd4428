"""Servers on real sockets that do what a script says."""

from __future__ import annotations

import json
import socket
import struct
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

Object = dict[str, Any]


@dataclass
class Received:
    server: int
    method: str
    target: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Scripted:
    """So many servers, which answer the attempts of a script in its order, whichever of them is asked."""

    count: int
    script: list[Object] = field(default_factory=list)
    received: list[Received] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: list[socket.socket | None] = [None] * self.count
        self._connections: list[set[socket.socket]] = [set() for _ in range(self.count)]
        self._threads: list[threading.Thread] = []
        self._ports: list[int] = []
        for i in range(self.count):
            self._ports.append(0)
            self.listen(i)

    @property
    def urls(self) -> list[str]:
        return [f"http://127.0.0.1:{port}" for port in self._ports]

    def listen(self, server: int) -> None:
        if self._listeners[server]:
            return
        listener = socket.create_server(("127.0.0.1", self._ports[server]), reuse_port=False)
        self._ports[server] = listener.getsockname()[1]
        self._listeners[server] = listener
        self._start(self._accept, server, listener)

    def refuse(self, server: int) -> None:
        listener, self._listeners[server] = self._listeners[server], None
        if listener:
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)  # Ends its accept.
            listener.close()
        with self._lock:
            for c in list(self._connections[server]):
                with suppress(OSError):
                    c.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        for i in range(self.count):
            self.refuse(i)
        for t in self._threads:
            t.join(10)
            assert not t.is_alive()

    def _start(self, run: Any, *args: Any) -> None:
        thread = threading.Thread(target=run, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self, server: int, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with self._lock:
                if self._peek() == (server, "reset"):
                    self.script.pop(0)
                    _reset(connection)
                    continue
                self._connections[server].add(connection)
            self._start(self._serve, server, connection)

    def _peek(self) -> tuple[int, str]:
        """The next attempt that a server notices."""
        while self.script and self.script[0].get("fault") == "refused":
            self.script.pop(0)
        return (self.script[0]["server"], self.script[0].get("fault", "")) if self.script else (-1, "")

    def _serve(self, server: int, connection: socket.socket) -> None:
        try:
            with connection, connection.makefile("rb") as stream:
                while request := _read(server, stream):
                    with self._lock:
                        self.received.append(request)
                        expected = self._peek()
                        if expected[0] != server:
                            self.wrong.append(f"server {server} was asked: {request.method} {request.target}")
                            return
                        step = self.script.pop(0)
                    if not _act(connection, stream, step):
                        return
        except OSError:
            pass
        finally:
            with self._lock:
                self._connections[server].discard(connection)


def _read(server: int, stream: Any) -> Received | None:
    line = stream.readline().decode()
    if not line:
        return None
    method, target, _ = line.split(" ")
    headers: dict[str, str] = {}
    while (line := stream.readline().decode().strip()) != "":
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    return Received(server, method, target, headers, stream.read(int(headers.get("content-length", 0))))


def _act(connection: socket.socket, stream: Any, step: Object) -> bool:
    """Returns whether the connection lives on."""
    match step.get("fault"):
        case None:
            a = step["answer"]
            body = a["text"].encode() if "text" in a else json.dumps(a["body"]).encode()
            connection.sendall(_head(a["status"], a.get("headers", {}), len(body)) + body)
            return True
        case "garbled":
            connection.sendall(_head(200, {}, 5) + b"<htm>")
            return True
        case "cut":
            connection.sendall(_head(201, {}, 100) + b'{"id": "a", "ke')
        case "hang":
            stream.read(1)  # Until the client goes.
        case "dropped":
            stream.close()
            _reset(connection)
        case other:
            raise AssertionError(other)
    return False


def _head(status: int, headers: dict[str, str], length: int) -> bytes:
    headers = {"Content-Type": "application/json", **headers, "Content-Length": str(length)}
    lines = [f"HTTP/1.1 {status} Status", *(f"{name}: {value}" for name, value in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def _reset(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()
