"""Tests programs that schedule, without a bridge: a fake one in memory, with a clock that the test moves.

    bridge = FakeBridge("orders")
    shop = Shop(bridge.client())
    shop.place_order(42)
    bridge.clock.advance(minutes=30)
    assert [m.topic for m in bridge.published] == ["order.timeout"]

The clients are the real ones; only the way to the bridge is replaced. The fake answers as a bridge does: cancels and
reschedules tell the truth, limits are checked, idempotency keys work. The clock stands still until it is moved.

It does not have jobs, lists, histories, dead letters, retries, and lateness. Use ``bridge dev --memory`` for those.
"""

from __future__ import annotations

import base64
import itertools
import json
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any
from urllib.parse import parse_qs, unquote

import httpx

from . import _check, _spread, _wire
from ._transport import Clock as _ClientClock
from .aio import AsyncClient
from .client import Client
from .errors import DelaybridgeError, InvalidError, NotFoundError, TooLateError, error_of
from .model import Late, Message

__all__ = ["Clock", "FakeBridge", "Published"]

_MOST_DELAY = timedelta(days=10 * 366)
_REMEMBERED = timedelta(hours=24)
_UNITS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_TARGET = re.compile(r"/api/v1/queues/([^/:]+)/messages(?::(batch)|/([^/:]+)(?::(reschedule|publish-now))?)?")
_FAULTS = {"unavailable": 503, "no_layout": 503, "rate_limited": 429, "full": 507, "unknown": 504, "failed": 500}
_STATUSES = (
    _FAULTS
    | {"invalid": 400, "not_found": 404, "duplicate": 409, "too_late": 409, "key_reused": 422}
    | {
        "unauthorized": 401,
        "forbidden": 403,
    }
)
_TITLES = {
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    409: "Conflict",
    422: "Unprocessable Entity",
    429: "Too Many Requests",
    500: "Internal Server Error",
    503: "Service Unavailable",
    504: "Gateway Timeout",
    507: "Insufficient Storage",
}
_FIELDS = {"header": "headers", "tag": "tags"}


@dataclass(frozen=True)
class Published:
    """A message as a consumer gets it. ``headers`` are its own and those that the bridge adds, such as delay-id."""

    queue: str
    id: str
    key: str
    topic: str
    body: bytes
    headers: dict[str, str]
    due_at: datetime
    published_at: datetime


@dataclass
class _Stored:
    message: Message
    headers: dict[str, str]
    due_at: datetime
    scheduled_at: datetime
    number: int
    first_at: datetime | None = None
    is_in_flight: bool = False


@dataclass
class _Record:
    request: str
    response: httpx.Response
    until: datetime


class Clock:
    """The clock of a FakeBridge."""

    def __init__(self, start: datetime, reach: Callable[[datetime], list[Published]]) -> None:
        self.now = start
        self._reach = reach

    def advance(self, by: timedelta | None = None, **units: float) -> list[Published]:
        """Moves the clock forward, by a timedelta or by its arguments, as in ``advance(minutes=30)``. Every message
        that becomes due is published at its due time, in due order, and returned. ``advance()`` publishes what is due
        now."""
        by = (by or timedelta()) + timedelta(**units)
        if by < timedelta():
            raise ValueError(f"advance by {by}: time does not run backwards")
        return self._reach(self.now + by)


class FakeBridge:
    """A bridge in memory with these queues. ``tokens`` maps each token to its role, ``producer`` or ``viewer``; without
    them, everybody may do everything. It is safe for threads."""

    def __init__(self, *queues: str, start: datetime | None = None, tokens: Mapping[str, str] | None = None) -> None:
        start = start or datetime.now(timezone.utc)
        self.clock = Clock(start.replace(microsecond=start.microsecond // 1000 * 1000), self._advance)
        self.published: list[Published] = []
        self._queues: dict[str, dict[tuple[str, str], _Stored]] = {q: {} for q in queues or ("orders",)}
        self._tokens = tokens
        self._records: dict[tuple[str, str, str], _Record] = {}
        self._handlers: dict[str, Callable[[Published], object]] = {}
        self._faults: list[str] = []
        self._numbers = itertools.count(1)
        self._lock = threading.RLock()

    def client(self, **options: Any) -> Client:
        """A Client of this bridge; its options are those of Client. Its waits before repetitions move the clock."""
        http = httpx.Client(transport=httpx.MockTransport(self._answer))
        return Client("http://fake", http=http, _clock=self._client_clock(), _sleep=self._wait, **options)

    def async_client(self, **options: Any) -> AsyncClient:
        """As client."""

        async def wait(seconds: float) -> None:
            self._wait(seconds)

        http = httpx.AsyncClient(transport=httpx.MockTransport(self._answer))
        return AsyncClient("http://fake", http=http, _clock=self._client_clock(), _sleep=wait, **options)

    def handle(self, topic: str, handle: Callable[[Published], object]) -> None:
        """Has handle called for each message of the topic that is published. Until it returns, the message is in
        flight, so a cancel is too late. It may schedule more."""
        self._handlers[topic] = handle

    def scheduled(self, queue: str | None = None) -> list[Message]:
        """The messages that wait, in due order, with ``at`` for their due times."""
        with self._lock:
            found = [s for name, all in self._queues.items() if queue in (None, name) for s in all.values()]
            return [
                Message(m.topic, None, s.due_at, m.id, m.key, m.body, m.headers, m.tags, late=m.late)
                for s in sorted(found, key=lambda s: (s.due_at, s.number))
                for m in [s.message]
                if not s.is_in_flight
            ]

    def fail(self, what: str, times: int = 1) -> None:
        """Has the next requests fail: by a code (``unavailable``, ``rate_limited``, ``full``, ``unknown``…), without an
        effect; ``refused``, as if nobody listened; or ``lost``: the request is done, and its answer lost."""
        if what not in (*_FAULTS, "refused", "lost"):
            raise ValueError(f"{what!r}: one of refused, lost, {', '.join(_FAULTS)}")
        self._faults += [what] * times

    def _client_clock(self) -> _ClientClock:
        start = self.clock.now
        return _ClientClock(now=lambda: (self.clock.now - start).total_seconds())

    def _wait(self, seconds: float) -> None:
        self._advance(self.clock.now + timedelta(seconds=seconds))

    def _advance(self, to: datetime) -> list[Published]:
        with self._lock:
            before = len(self.published)
            while next_one := self._next(to):
                queue, stored = next_one
                self.clock.now = max(self.clock.now, stored.due_at)
                self._publish(queue, stored)
            self.clock.now = max(self.clock.now, to)
            return self.published[before:]

    def _next(self, to: datetime) -> tuple[str, _Stored] | None:
        due = [
            (s.due_at, s.number, name, s)
            for name, all in self._queues.items()
            for s in all.values()
            if s.due_at <= to and not s.is_in_flight
        ]
        return min(due, key=lambda d: d[:2])[2:] if due else None

    def _publish(self, queue: str, stored: _Stored) -> None:
        m = stored.message
        headers = stored.headers | {
            "delay-uid": f"uid-{stored.number}",
            "delay-id": m.id,
            "delay-queue": queue,
            "delay-due-at": _wire.stamp(stored.due_at),
            "delay-scheduled-at": _wire.stamp(stored.scheduled_at),
            "delay-attempt": "1",
        }
        if stored.first_at:
            headers["delay-first-at"] = _wire.stamp(stored.first_at)
        published = Published(
            queue, m.id, m.key, m.topic, _wire.body_bytes(m.body), headers, stored.due_at, self.clock.now
        )
        stored.is_in_flight = True
        try:
            if handle := self._handlers.get(m.topic):
                handle(published)
        finally:
            del self._queues[queue][m.key, m.id]
            self.published.append(published)

    def _answer(self, request: httpx.Request) -> httpx.Response:
        with self._lock:
            fault = self._faults.pop(0) if self._faults else None
            if fault == "refused":
                raise httpx.ConnectError("the test asked for it")
            if fault and fault != "lost":
                return _problem(error_of(fault, "the test asked for it"), retry_after=_FAULTS[fault] in (429, 503))
            try:
                response = self._serve(request)
            except DelaybridgeError as e:
                response = _problem(e)
            if fault:
                raise httpx.ReadError("the test asked for it")
            return response

    def _serve(self, request: httpx.Request) -> httpx.Response:
        path, _, query = request.url.raw_path.decode().partition("?")
        values = {name: v[0] for name, v in parse_qs(query).items()}
        found = _TARGET.fullmatch(path)
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        self._authorize(token, request.method)
        if not found or unquote(found[1]) not in self._queues:
            raise NotFoundError("there is no such queue or call")
        queue, is_batch, escaped, verb = unquote(found[1]), bool(found[2]), found[3], found[4]
        if request.method == "POST" and escaped is None:
            return self._once(token, queue, is_batch, request)
        if escaped is None:
            return _ok(self._cancel_all(queue, values.get("tag", ""), values.get("key", "")))
        id = "." * int(values["dots"]) if escaped == "-" and "dots" in values else unquote(escaped)
        identity = (values.get("key", ""), id)
        if request.method == "GET":
            return _ok(self._view(queue, self._find(queue, identity), "body" in values))
        if request.method == "DELETE":
            self._waits(queue, identity)
            del self._queues[queue][identity]
            return _ok({"status": "cancelled", "maybe_published": False})
        moved = self._waits(queue, identity)
        members = {"in": "0ms"} if verb == "publish-now" else json.loads(request.content)
        moved.due_at = self._due(_read({"topic": moved.message.topic, "id": id, "key": identity[0], **members}))
        return _ok({"status": "rescheduled", "maybe_published": False})

    def _authorize(self, token: str, method: str) -> None:
        if self._tokens is None:
            return
        if token not in self._tokens:
            raise error_of("unauthorized", "the token is not known")
        if self._tokens[token] == "viewer" and method != "GET":
            raise error_of("forbidden", "a viewer changes nothing")

    def _once(self, token: str, queue: str, is_batch: bool, request: httpx.Request) -> httpx.Response:
        """Schedules, or repeats the answer of the first request under the key."""
        key = request.headers.get("Idempotency-Key")
        asked = json.dumps([is_batch, json.loads(request.content)], sort_keys=True)
        record = self._records.get((token, queue, key)) if key else None
        if record and record.until > self.clock.now:
            if record.request != asked:
                detail = "the Idempotency-Key was used for another request in the last 24 h"
                raise error_of("key_reused", detail, field="Idempotency-Key")
            replayed = {"Idempotent-Replayed": "true", "Content-Type": record.response.headers["Content-Type"]}
            return httpx.Response(record.response.status_code, headers=replayed, content=record.response.content)
        members = json.loads(request.content)
        response = self._batch(queue, members["messages"]) if is_batch else self._one(queue, members)
        if key and response.status_code not in (400, 403, 507):
            self._records[token, queue, key] = _Record(asked, response, self.clock.now + _REMEMBERED)
        return response

    def _one(self, queue: str, members: dict[str, Any]) -> httpx.Response:
        result = self._schedule(queue, members)
        error = result.get("error")
        if error is None:
            return _ok(result, 201)
        known: dict[str, Any] = {n: result[n] for n in ("id", "due_at") if n in result}
        return _problem(error_of(error["code"], error["detail"], field=error.get("field")), known)

    def _batch(self, queue: str, messages: list[dict[str, Any]]) -> httpx.Response:
        order = sorted(range(len(messages)), key=lambda i: messages[i].get("conflict") == "replace")  # These go last.
        results = {i: self._schedule(queue, messages[i]) for i in order}
        return _ok({"results": [results[i] for i in range(len(messages))]})

    def _schedule(self, queue: str, members: dict[str, Any]) -> dict[str, Any]:
        members = {"id": f"01FAKE{next(self._numbers):020d}", **members}
        result: dict[str, Any] = {"id": members["id"], "key": members.get("key", "")}
        try:
            m = _read(members)
            headers = _check.message(m)
            due = self._due(m)
        except InvalidError as e:
            field = _FIELDS.get(e.field or "", e.field)
            return result | {"error": {"code": "invalid", "detail": e.detail, "field": field}}
        new = _Stored(m, headers, due, self.clock.now, next(self._numbers))
        old = self._queues[queue].get((m.key, m.id))
        if m.max_wait is not None:
            new.first_at = old.first_at if old and old.first_at else self.clock.now
            new.due_at = min(due, new.first_at + m.max_wait)
        if old is None:
            return self._store(queue, new, result | {"status": "created"})
        if m.conflict == "keep":
            return result | {"due_at": _wire.stamp(old.due_at), "status": "existing"}
        if m.conflict != "replace":
            detail = f"duplicate message: it waits until {_wire.stamp(old.due_at)}"
            return result | {"due_at": _wire.stamp(old.due_at), "error": {"code": "duplicate", "detail": detail}}
        if old.is_in_flight:
            return result | {"error": {"code": "too_late", "detail": "too late, message in flight"}}
        return self._store(queue, new, result | {"status": "replaced"})

    def _store(self, queue: str, new: _Stored, result: dict[str, Any]) -> dict[str, Any]:
        self._queues[queue][new.message.key, new.message.id] = new
        return result | {"due_at": _wire.stamp(new.due_at)}

    def _due(self, m: Message) -> datetime:
        if (m.after is None) == (m.at is None):
            raise InvalidError("give in or at, and not both", field="in")
        due = m.at if m.at is not None else self.clock.now + (m.after or timedelta())
        if not datetime(1970, 1, 1, tzinfo=timezone.utc) <= due <= self.clock.now + _MOST_DELAY:
            raise InvalidError("from 1970 to 10 years from now", field="at" if m.at is not None else "in")
        if m.max_wait is not None and (m.conflict != "replace" or m.after is None or m.max_wait < m.after):
            raise InvalidError("needs in, conflict replace, and at least the delay", field="max_wait")
        if m.spread:
            due += timedelta(milliseconds=_spread.share(m.key, m.id, m.spread // timedelta(milliseconds=1)))
        return due

    def _find(self, queue: str, identity: tuple[str, str]) -> _Stored:
        stored = self._queues[queue].get(identity)
        if stored is None:
            raise NotFoundError("message not found")
        return stored

    def _waits(self, queue: str, identity: tuple[str, str]) -> _Stored:
        stored = self._find(queue, identity)
        if stored.is_in_flight:
            raise TooLateError("too late, message in flight")
        return stored

    def _cancel_all(self, queue: str, tag: str, key: str) -> dict[str, Any]:
        if not tag and not key:
            raise InvalidError("filter: a tag or a key", field="filter")
        meant = [
            (identity, s)
            for identity, s in self._queues[queue].items()
            if tag in ("", *s.message.tags) and key in ("", s.message.key)
        ]
        done = [identity for identity, s in meant if not s.is_in_flight]
        for identity in done:
            del self._queues[queue][identity]
        return {"done": len(done), "maybe_published": 0, "too_late": len(meant) - len(done), "more": False}

    def _view(self, queue: str, s: _Stored, with_body: bool) -> dict[str, Any]:
        m = s.message
        view: dict[str, Any] = {
            "id": m.id,
            "key": m.key,
            "queue": queue,
            "topic": m.topic,
            "state": "in_flight" if s.is_in_flight else "scheduled",
            "due_at": _wire.stamp(s.due_at),
            "scheduled_at": _wire.stamp(s.scheduled_at),
            "attempt": 1,
            "maybe_published": False,
            "tags": sorted(set(m.tags)),
            "headers": {n: v for n, v in s.headers.items() if n != "delay-tags"},
        }
        if with_body:
            text, encoded = _wire.body_members(m.body)
            view |= {"body_base64": encoded} if encoded else {"body": text}
        return view


def _read(members: dict[str, Any]) -> Message:
    """The message of a request."""
    late = members.get("late")
    try:
        return Message(
            members.get("topic", ""),
            after=_duration("in", members.get("in")),
            at=_wire.instant(members.get("at")),
            id=members["id"],
            key=members.get("key", ""),
            body=base64.b64decode(members["body_base64"]) if "body_base64" in members else members.get("body", ""),
            headers=members.get("headers", {}),
            tags=members.get("tags", ()),
            spread=_duration("spread", members.get("spread")),
            max_wait=_duration("max_wait", members.get("max_wait")),
            late=late and Late(late["then"], _duration("late.after", late.get("after"))),
            conflict=members.get("conflict"),
        )
    except ValueError as e:
        raise InvalidError(str(e)) from e


def _duration(field: str, text: str | None) -> timedelta | None:
    if text is None:
        return None
    if not (found := re.fullmatch(r"(\d+)(ms|s|m|h|d)", text)):
        raise InvalidError(f"{field} {text!r}: the fake reads one number and ms, s, m, h or d", field=field)
    return timedelta(milliseconds=int(found[1]) * _UNITS[found[2]])


def _ok(value: dict[str, Any], status: int = 200) -> httpx.Response:
    return httpx.Response(status, json=value)


def _problem(e: DelaybridgeError, known: dict[str, Any] | None = None, retry_after: bool = False) -> httpx.Response:
    status = _STATUSES.get(e.code, 500)
    value = {"title": _TITLES[status], "status": status, "code": e.code, "detail": e.detail, **(known or {})}
    if e.field:
        value["field"] = e.field
    headers = {"Content-Type": "application/problem+json"}
    if retry_after:
        headers["Retry-After"] = "1"
    return httpx.Response(status, headers=headers, content=json.dumps(value).encode())
