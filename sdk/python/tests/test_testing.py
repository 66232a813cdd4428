"""Holds the fake bridge against the vectors, and uses it as programs do."""

from __future__ import annotations

import asyncio
import re
from datetime import datetime, timedelta, timezone
from typing import Any

import httpx
import neutral
import pytest

from delaybridge import (
    Batcher,
    DuplicateError,
    KeyReusedError,
    Message,
    NotFoundError,
    TooLateError,
    UnavailableError,
    UnknownError,
)
from delaybridge.testing import FakeBridge, Published

Object = dict[str, Any]
REAL = [v for v in neutral.read("calls.json") if v.get("real", True)]


@pytest.mark.parametrize("v", REAL, ids=[v["name"] for v in REAL])
def test_vectors(v: Object) -> None:
    has_tokens = "token" in v.get("options", {})
    tokens = {"producer-token-1": "producer", "viewer-token-1": "viewer"} if has_tokens else None
    bridge = FakeBridge("orders", tokens=tokens)
    for step in v.get("before", []):
        if step == "claim":
            for stored in bridge._queues["orders"].values():
                stored.is_in_flight = stored.due_at <= bridge.clock.now
        else:
            assert ask(bridge, step).status_code == 201
    got = ask(bridge, v["request"])
    values: dict[str, str] = {}
    assert got.status_code == v["answer"]["status"], got.text
    assert matched(got.json(), v["answer"]["body"], values)
    for name, value in v["answer"].get("headers", {}).items():
        assert got.headers[name] == value


def ask(bridge: FakeBridge, r: Object) -> httpx.Response:
    headers = {n: h.replace("$KEY", "a-key") for n, h in r.get("headers", {}).items()}
    url = httpx.URL("http://fake", raw_path=(r["path"] + "?" + str(httpx.QueryParams(r.get("query", {})))).encode())
    return bridge._answer(httpx.Request(r["method"], url, headers=headers, json=r.get("body")))


def matched(got: Any, want: Any, values: dict[str, str]) -> bool:
    """Whether an answer is the vector's, whose placeholders stand for the same everywhere."""
    if isinstance(want, dict):
        assert got.keys() == want.keys()
        return all(matched(got[n], v, values) for n, v in want.items())
    if isinstance(want, list):
        return all(matched(g, w, values) for g, w in zip(got, want, strict=True))
    if isinstance(want, str) and want.startswith("$"):
        forms = {"$ID": r"[0-9A-HJKMNP-TV-Z]{26}", "$DETAIL": ".+"}
        assert re.fullmatch(forms.get(want, r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"), got)
        return want == "$DETAIL" or values.setdefault(want, got) == got
    assert got == want
    return True


def in_minutes(n: float, **more: Any) -> Message:
    return Message("order.timeout", after=timedelta(minutes=n), **more)


def test_due_messages_are_published() -> None:
    start = datetime(2031, 1, 31, 9, tzinfo=timezone.utc)
    bridge = FakeBridge("orders", start=start)
    with bridge.client() as client:
        client.schedule("orders", in_minutes(30, id="b", key="k", body="text", headers={"tenant": "a"}, tags=["x"]))
        client.schedule("orders", in_minutes(10, id="a"))
        client.schedule("orders", in_minutes(60, id="c"))
    assert bridge.clock.advance(minutes=9, seconds=59) == []
    assert [m.id for m in bridge.clock.advance(minutes=30)] == ["a", "b"]
    b = bridge.published[1]
    assert (b.key, b.body, b.published_at) == ("k", b"text", start + timedelta(minutes=30))
    assert b.headers["tenant"] == "a"
    assert b.headers["delay-tags"] == "x"
    assert b.headers["delay-due-at"] == "2031-01-31T09:30:00.000Z"
    assert [m.id for m in bridge.scheduled()] == ["c"]


def test_cancel_and_reschedule_tell_the_truth() -> None:
    bridge = FakeBridge("orders")
    client = bridge.client()
    client.schedule("orders", in_minutes(30, id="a"))
    client.reschedule("orders", "a", after=timedelta(hours=1))
    assert bridge.clock.advance(minutes=59) == []
    with pytest.raises(DuplicateError):
        client.schedule("orders", in_minutes(1, id="a"))
    assert client.cancel("orders", "a").status == "cancelled"
    with pytest.raises(NotFoundError):
        client.cancel("orders", "a")
    assert bridge.clock.advance(hours=1) == []
    client.schedule("orders", in_minutes(1, id="b"))
    client.publish_now("orders", "b")
    assert [m.id for m in bridge.clock.advance()] == ["b"]


def test_handlers_meet_messages_in_flight() -> None:
    bridge = FakeBridge("orders")
    client = bridge.client()

    def again(m: Published) -> None:
        with pytest.raises(TooLateError):
            client.cancel("orders", m.id)
        if m.id == "1":
            client.schedule("orders", in_minutes(5, id="2"))

    bridge.handle("order.timeout", again)
    client.schedule("orders", in_minutes(5, id="1"))
    assert [(m.id, m.published_at) for m in bridge.clock.advance(minutes=20)] == [
        ("1", bridge.clock.now - timedelta(minutes=15)),
        ("2", bridge.clock.now - timedelta(minutes=10)),
    ]


def test_debounce() -> None:
    bridge = FakeBridge("orders")
    client = bridge.client()
    for _ in range(4):
        client.schedule("orders", in_minutes(2, id="a", conflict="replace", max_wait=timedelta(minutes=5)))
        assert bridge.clock.advance(minutes=1) == []
    assert [m.id for m in bridge.clock.advance(minutes=1)] == ["a"]


def test_faults() -> None:
    bridge = FakeBridge("orders")
    client = bridge.client(timeout=20)
    bridge.fail("lost")
    result = client.schedule("orders", in_minutes(30))
    assert result.replayed
    bridge.fail("refused")
    assert client.get("orders", result.id).id == result.id
    assert len(bridge.scheduled()) == 1
    bridge.fail("unavailable", times=3)
    client.schedule("orders", in_minutes(30))
    bridge.fail("lost")
    with pytest.raises(UnknownError):
        client.cancel("orders", result.id)
    bridge.fail("unavailable", times=100)
    with pytest.raises(UnavailableError):
        client.schedule("orders", in_minutes(30))
    assert len(bridge.scheduled()) == 1


def test_keys_are_kept_for_a_day() -> None:
    bridge = FakeBridge("orders")
    client = bridge.client()
    first = client.schedule("orders", in_minutes(1), idempotency_key="k")
    with pytest.raises(KeyReusedError):
        client.schedule("orders", in_minutes(2), idempotency_key="k")
    bridge.clock.advance(hours=23)
    assert client.schedule("orders", in_minutes(1), idempotency_key="k").id == first.id
    assert len(bridge.published) == 1
    bridge.clock.advance(hours=1)
    assert client.schedule("orders", in_minutes(1), idempotency_key="k").id != first.id


def test_async_client_and_batcher() -> None:
    bridge = FakeBridge("orders")

    async def run() -> None:
        async with bridge.async_client() as client:
            await client.schedule("orders", in_minutes(1, id="a"))

    asyncio.run(run())
    with bridge.client() as client, Batcher(client, "orders") as batcher:
        futures = [batcher.add(in_minutes(2)) for _ in range(1200)]
    assert len({f.result().id for f in futures}) == 1200
    assert len(bridge.clock.advance(minutes=2)) == 1201


def test_time_does_not_run_backwards() -> None:
    with pytest.raises(ValueError, match="backwards"):
        FakeBridge("orders").clock.advance(minutes=-1)
