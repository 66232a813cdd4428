"""Plays sdk/vectors with both clients against servers on real sockets."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import neutral
import pytest
from scripted import Received, Scripted

from delaybridge import AsyncBatcher, AsyncClient, Batcher, Client, DelaybridgeError
from delaybridge._transport import Clock

Object = dict[str, Any]


class Waits:
    """A clock that waiting moves. It notes the waits by the number of requests before them."""

    def __init__(self, servers: Scripted, attempts: list[Object]) -> None:
        self.time, self._first = 0.0, True
        self.servers = servers
        self.clock = Clock(lambda: self.time, self._random)
        self.begin(attempts)

    def begin(self, attempts: list[Object]) -> None:
        self.attempts = attempts
        self.asked: list[str] = []
        self.waits: dict[int, float] = {}
        self._prepare(0)

    def _random(self) -> float:
        if self._first:  # It chooses the server.
            self._first = False
            return 0.0
        return random.random()

    def ask(self, url: str) -> None:
        self.asked.append(url)

    def sleep(self, seconds: float) -> None:
        assert len(self.asked) not in self.waits
        self.waits[len(self.asked)] = seconds
        self.time += seconds
        self._prepare(len(self.asked))

    def _prepare(self, begin: int) -> None:
        """Has the servers listen or refuse until the next wait."""
        for n, attempt in enumerate(self.attempts[begin:]):
            if n and "wait_ms" in attempt:
                return
            if attempt.get("fault") == "refused":
                self.servers.refuse(attempt["server"])
            else:
                self.servers.listen(attempt["server"])

    def check(self) -> None:
        assert not self.servers.wrong
        order = [self.servers.urls.index("{0.scheme}://{0.netloc}".format(urlsplit(u))) for u in self.asked]
        assert order == [a["server"] for a in self.attempts]
        wanted = {n: a["wait_ms"] for n, a in enumerate(self.attempts) if "wait_ms" in a}
        assert set(self.waits) == set(wanted), self.waits
        for n, (least, most) in wanted.items():
            assert least <= self.waits[n] * 1000 <= most + 0.001, self.waits


class SyncPlayer:
    """Client, with the player's clock."""

    def __init__(self, urls: list[str], waits: Waits, **options: Any) -> None:
        self._client = Client(urls, _clock=waits.clock, _sleep=waits.sleep, **options)
        ask = self._client._ask

        def noted(request: Any, url: str, headers: Any, seconds: float) -> Any:
            waits.ask(url)
            return ask(request, url, headers, seconds)

        self._client._ask = noted  # type: ignore[method-assign]

    def call(self, c: Object) -> object:
        name, args, named = neutral.call(c)
        try:
            return getattr(self._client, name)(*args, **named)
        except DelaybridgeError as e:
            return e

    def close(self) -> None:
        self._client.close()


class AsyncPlayer:
    """AsyncClient, with the player's clock."""

    def __init__(self, urls: list[str], waits: Waits, **options: Any) -> None:
        async def sleep(seconds: float) -> None:
            waits.sleep(seconds)

        self._client = AsyncClient(urls, _clock=waits.clock, _sleep=sleep, **options)
        ask = self._client._ask

        def noted(request: Any, url: str, headers: Any, seconds: float, progress: Any) -> Any:
            waits.ask(url)
            return ask(request, url, headers, seconds, progress)

        self._client._ask = noted  # type: ignore[method-assign]
        self._loop = asyncio.new_event_loop()

    def call(self, c: Object) -> object:
        name, args, named = neutral.call(c)
        try:
            return self._loop.run_until_complete(getattr(self._client, name)(*args, **named))
        except DelaybridgeError as e:
            return e

    def close(self) -> None:
        self._loop.run_until_complete(self._client.aclose())
        self._loop.close()


Player = SyncPlayer | AsyncPlayer


@pytest.fixture(params=[SyncPlayer, AsyncPlayer], ids=["sync", "async"])
def player(request: pytest.FixtureRequest) -> type[Player]:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def opened() -> Iterator[list[Any]]:
    """What the test has opened, the servers last."""
    all: list[Any] = []
    yield all
    for one in all:
        one.close()


def names(vectors: list[Object]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("v", vectors, ids=[v["name"] for v in vectors])


@names(neutral.read("calls.json"))
def test_calls(v: Object, player: type[Player], opened: list[Any]) -> None:
    servers = Scripted(1, [{"server": 0, "answer": neutral.fill(v["answer"])}])
    waits = Waits(servers, [{"server": 0}])
    opened += [player(servers.urls, waits, **v.get("options", {})), servers]
    got = opened[0].call(v["call"])
    neutral.same(got, v)
    waits.check()
    assert len(servers.received) == 1
    same_request(servers.received[0], v["request"])


def same_request(got: Received, want: Object) -> None:
    url = urlsplit(got.target)
    assert got.method == want["method"]
    assert url.path == want["path"]
    assert dict(parse_qsl(url.query, strict_parsing=bool(url.query))) == want.get("query", {})
    for name, value in want.get("headers", {}).items():
        found = got.headers[name.lower()]
        assert is_key(found) if value == "$KEY" else found == value
    if "body" in want:
        assert json.loads(got.body) == want["body"]
    else:
        assert not got.body
        assert "content-type" not in got.headers
    assert ("idempotency-key" in got.headers) == ("Idempotency-Key" in want.get("headers", {}))


def is_key(text: str) -> bool:
    return 1 <= len(text) <= 255 and all(" " <= c <= "~" for c in text)


@names(neutral.read("faults.json"))
def test_faults(v: Object, player: type[Player], opened: list[Any]) -> None:
    servers = Scripted(v["servers"])
    waits = Waits(servers, v["calls"][0]["attempts"])
    options = {name.removesuffix("_ms"): ms / 1000 for name, ms in v.get("options", {}).items()}
    if "tokens" in v:
        left = list(v["tokens"])
        options["token"] = lambda: left.pop(0) if len(left) > 1 else left[0]
    opened += [player(servers.urls, waits, **options), servers]
    keys = set()
    for c in v["calls"]:
        servers.script, servers.received = neutral.fill(c["attempts"]), []
        waits.begin(c["attempts"])
        got = opened[0].call(c["call"])
        neutral.same(got, c)
        waits.check()
        keys |= same_requests(servers.received, c)
        if isinstance(got, DelaybridgeError) and got.code == "unknown" and c["call"]["do"] == "schedule":
            assert got.idempotency_key in keys
    scheduling = [c for c in v["calls"] if c["call"]["do"].startswith("schedule")]
    assert len(keys) == len(scheduling), "each call that schedules has a key of its own"


def same_requests(received: list[Received], c: Object) -> set[str]:
    """All requests of a call are one request. Returns its key, if it has one."""
    read = [a for a in c["attempts"] if a.get("fault") not in ("refused", "reset")]
    assert len(received) == len(read)
    assert len({(r.method, r.target, r.body, r.headers.get("idempotency-key")) for r in received}) == 1
    for r, attempt in zip(received, read, strict=True):
        for name, value in attempt.get("headers", {}).items():
            assert r.headers[name.lower()] == value
    return {r.headers["idempotency-key"] for r in received if "idempotency-key" in r.headers}


@names(neutral.read("batches.json"))
@pytest.mark.parametrize("kind", ["sync", "async"])
def test_batches(v: Object, kind: str, opened: list[Any]) -> None:
    servers = Scripted(1, [{"server": 0, "answer": neutral.fill(a)} for a in v["answers"]])
    opened.append(servers)
    messages = [neutral.message(m) for m in v["messages"]]
    options = {"linger": 60, **v["options"]}
    got: list[object]
    if kind == "sync":
        with Client(servers.urls) as client, Batcher(client, "orders", **options) as batcher:
            futures = [batcher.add(m) for m in messages]
            batcher.close()
            got = [f.exception() or f.result() for f in futures]
    else:

        async def run() -> list[object]:
            async with AsyncClient(servers.urls) as client:
                async with AsyncBatcher(client, "orders", **options) as batcher:
                    futures = [await batcher.add(m) for m in messages]
                return [f.exception() or f.result() for f in futures]

        got = asyncio.run(run())
    neutral.same(got, {"result": v["results"]})
    sent = [json.loads(r.body)["messages"] for r in servers.received]
    want = [json.loads(b) for b in map(_encoded, messages)]
    assert sent == [[want[i] for i in request] for request in v["requests"]]
    assert len({r.headers["idempotency-key"] for r in servers.received}) == len(v["requests"])


def _encoded(message: Any) -> bytes:
    from delaybridge import _wire

    return _wire.encode(message)
