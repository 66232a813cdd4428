"""Calls as HTTP requests, and answers as results. Nothing here sends anything."""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from typing import Any, Generic, TypeVar
from urllib.parse import quote, urlencode

from .errors import DelaybridgeError, InvalidError, error_of
from .model import BatchItem, CancelCount, ChangeResult, End, Message, ScheduleResult, StoredMessage

T = TypeVar("T")

MOST_BATCH = 1000
"""How many messages one request may have."""
OPENING, CLOSING = b'{"messages":[', b"]}"

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True)
class Answer:
    """An HTTP answer. ``headers`` have lower-case names; ``data`` is None if the body is no JSON object."""

    status: int
    headers: dict[str, str]
    data: dict[str, Any] | None


def _never(_: object) -> bool:
    return False


def _same(result: T) -> T:
    return result


_OF_SCHEDULE = frozenset({"duplicate", "too_late", "invalid", "key_reused"})
_OF_REST = frozenset({"unavailable", "no_layout", "unknown", "failed"})


@dataclass(frozen=True)
class Request(Generic[T]):
    """A request, and how to read its answer."""

    method: str
    target: str
    read: Callable[[Answer], T]
    body: bytes | None = None
    headers: dict[str, str] = field(default_factory=dict)
    key: str | None = None
    """The idempotency key of calls that schedule."""
    is_change: bool = True
    settled_by: frozenset[str] = frozenset()
    """The codes that, after a request whose answer was lost, tell that it had no effect either."""
    repeatable: Callable[[T], bool] = _never
    """Whether a part of the result is to be done by the same request again."""
    unsettled: Callable[[T], T] = _same
    """The result, if the last repetition for its rest was lost."""
    longer: float = 0
    """Seconds that the server may take beyond what others take."""


def schedule(queue: str, message: Message, key: str | None) -> Request[ScheduleResult]:
    def read(answer: Answer) -> ScheduleResult:
        return _scheduled(_object(answer.data), answer)

    return _scheduling(f"{_queue(queue)}/messages", encode(message), read, key)


def schedule_batch(queue: str, encoded: Sequence[bytes], key: str | None) -> Request[list[BatchItem]]:
    """encoded are the messages, each by encode."""
    if not 1 <= len(encoded) <= MOST_BATCH:
        raise InvalidError(f"{len(encoded)} messages: a batch has 1 to {MOST_BATCH}; use a Batcher", field="messages")

    def read(answer: Answer) -> list[BatchItem]:
        results = _object(answer.data).get("results")
        if not isinstance(results, list) or len(results) != len(encoded):
            raise ValueError("the answer has not one result for each message")
        return [_item(_object(r), answer) for r in results]

    body = OPENING + b",".join(encoded) + CLOSING
    request = _scheduling(f"{_queue(queue)}/messages:batch", body, read, key)
    return replace(request, repeatable=lambda items: any(map(_is_rest, items)), unsettled=_unsettled)


def _is_rest(item: BatchItem) -> bool:
    return isinstance(item, DelaybridgeError) and item.code in _OF_REST


def _unsettled(items: list[BatchItem]) -> list[BatchItem]:
    return [
        error_of("unknown", i.detail, id=i.id, due_at=i.due_at)
        if isinstance(i, DelaybridgeError) and _is_rest(i)
        else i
        for i in items
    ]


def cancel(queue: str, id: str, key: str) -> Request[ChangeResult]:
    return Request("DELETE", _message(queue, id, key), _changed, settled_by=frozenset({"too_late", "invalid"}))


def reschedule(
    queue: str, id: str, key: str, after: timedelta | None, at: datetime | None, spread: timedelta | None
) -> Request[ChangeResult]:
    body = _json(_without_empty({"in": _duration(after), "at": _instant(at), "spread": _duration(spread)}))
    return _moving(_message(queue, id, key, ":reschedule"), body)


def publish_now(queue: str, id: str, key: str) -> Request[ChangeResult]:
    return _moving(_message(queue, id, key, ":publish-now"), None)


def get(queue: str, id: str, key: str, with_body: bool) -> Request[StoredMessage]:
    target = _message(queue, id, key, query={"body": "1"} if with_body else {})
    return Request("GET", target, _stored, is_change=False)


def cancel_all(queue: str, tag: str, key: str) -> Request[CancelCount]:
    def read(answer: Answer) -> CancelCount:
        d = _object(answer.data)
        counts = d["done"], d["maybe_published"], d["too_late"]
        return CancelCount(*counts, more=d["more"], not_durable=d.get("not_durable", False))

    target = f"{_queue(queue)}/messages?" + _query({"tag": tag, "key": key})
    return Request("DELETE", target, read, settled_by=frozenset({"invalid"}), longer=10)


def encode(message: Message) -> bytes:
    """The message as compact JSON, in which nothing is escaped that need not be."""
    text, encoded = body_members(message.body)
    late = message.late and _without_empty({"after": _duration(message.late.after), "then": message.late.then})
    return _json(
        _without_empty(
            {
                "id": message.id,
                "key": message.key,
                "body": text,
                "body_base64": encoded,
                "headers": dict(message.headers),
                "tags": list(message.tags),
                "in": _duration(message.after),
                "at": _instant(message.at),
                "spread": _duration(message.spread),
                "max_wait": _duration(message.max_wait),
                "late": late,
                "conflict": message.conflict,
            }
        )
        | {"topic": message.topic}
    )


def problem(answer: Answer, key: str | None) -> DelaybridgeError:
    """The error of an answer that is not 2xx."""
    d = answer.data or {}
    code, detail = d.get("code"), d.get("detail")
    if not isinstance(code, str):  # Not the bridge's own: a proxy's, for example.
        code, detail = _code_of(answer.status), f"HTTP status {answer.status}"
    return error_of(
        code,
        str(detail),
        status=answer.status,
        field=d.get("field"),
        id=d.get("id"),
        due_at=instant(d.get("due_at")),
        idempotency_key=key,
    )


def _code_of(status: int) -> str:
    if status == 429:
        return "rate_limited"
    return "unknown" if status >= 500 else "failed"


def milliseconds(d: timedelta) -> int:
    """A duration in whole milliseconds, rounded up; 0 if it is less."""
    return max(-(-d // _MILLISECOND), 0)


def instant_ms(at: datetime) -> int:
    """An instant in milliseconds since 1970, rounded up."""
    if at.tzinfo is None:
        raise InvalidError(f"at {at.isoformat()}: it has no time zone", field="at")
    return -((_EPOCH - at) // _MILLISECOND)


def body_bytes(body: bytes | str) -> bytes:
    try:
        return body.encode() if isinstance(body, str) else bytes(body)
    except UnicodeEncodeError as e:
        raise InvalidError("body has characters that UTF-8 does not have", field="body") from e


def _scheduling(target: str, body: bytes, read: Callable[[Answer], T], key: str | None) -> Request[T]:
    if key is None:
        key = str(uuid.uuid4())
    elif not 1 <= len(key) <= 255 or not all(" " <= c <= "~" for c in key):
        raise InvalidError("the key must have 1 to 255 printable ASCII characters", field="Idempotency-Key")
    return Request("POST", target, read, body, {"Idempotency-Key": key}, key, settled_by=_OF_SCHEDULE)


def _moving(target: str, body: bytes | None) -> Request[ChangeResult]:
    return Request("POST", target, _changed, body, settled_by=frozenset({"invalid"}))


def _queue(name: str) -> str:
    if not name:
        raise InvalidError("the queue's name is empty", field="queue")
    return "/api/v1/queues/" + quote(name, safe="")


def _message(queue: str, id: str, key: str, verb: str = "", query: dict[str, str] | None = None) -> str:
    if not id:
        raise InvalidError("the message's id is empty", field="id")
    values = {"key": key, **(query or {})}
    name = quote(id, safe="")
    if id in (".", ".."):  # HTTP clients and proxies take them for a way up.
        name, values = "-", {"dots": str(len(id)), **values}
    target = f"{_queue(queue)}/messages/{name}{verb}"
    found = _query(values)
    return f"{target}?{found}" if found else target


def _query(values: dict[str, str]) -> str:
    return urlencode(_without_empty(values), quote_via=quote)


def _json(members: dict[str, Any]) -> bytes:
    try:
        return _compact(members)
    except (UnicodeEncodeError, TypeError):
        for field, value in members.items():
            try:
                _compact(value)
            except (UnicodeEncodeError, TypeError) as e:
                raise InvalidError(f"{field} is no text that UTF-8 has: {e.args[-1]}", field=field) from None
        raise


def _compact(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _without_empty(members: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value}


def body_members(body: bytes | str) -> tuple[str, str]:
    if isinstance(body, str):
        return body, ""
    try:
        return bytes(body).decode(), ""
    except UnicodeDecodeError:
        return "", base64.b64encode(body).decode()


def _duration(d: timedelta | None) -> str:
    return "" if d is None else f"{milliseconds(d)}ms"


def _instant(at: datetime | None) -> str:
    return "" if at is None else stamp(at)


def stamp(at: datetime) -> str:
    """An instant as the API writes it: in UTC with milliseconds, rounded up."""
    exact = _EPOCH + timedelta(milliseconds=instant_ms(at))
    return exact.strftime("%Y-%m-%dT%H:%M:%S.") + f"{exact.microsecond // 1000:03d}Z"


def instant(text: object) -> datetime | None:
    if not isinstance(text, str) or not text:
        return None
    return datetime.fromisoformat(text.replace("Z", "+00:00"))  # Python 3.10 does not read the Z.


def _object(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError("the answer is no JSON object")
    return value


def _is_replayed(answer: Answer) -> bool:
    return answer.headers.get("idempotent-replayed") == "true"


def _scheduled(d: dict[str, Any], answer: Answer) -> ScheduleResult:
    return ScheduleResult(
        d["id"], d["key"], d["status"], instant(d.get("due_at")), d.get("not_durable", False), _is_replayed(answer)
    )


def _item(d: dict[str, Any], answer: Answer) -> BatchItem:
    error = d.get("error")
    if error is None:
        return _scheduled(d, answer)
    return error_of(
        error["code"], error["detail"], field=error.get("field"), id=d.get("id"), due_at=instant(d.get("due_at"))
    )


def _changed(answer: Answer) -> ChangeResult:
    d = _object(answer.data)
    return ChangeResult(d["status"], d["maybe_published"], d.get("not_durable", False))


def _stored(answer: Answer) -> StoredMessage:
    d = _object(answer.data)
    body: bytes | None = None
    if "body" in d:
        body = d["body"].encode()
    elif "body_base64" in d:
        body = base64.b64decode(d["body_base64"])
    return StoredMessage(
        id=d["id"],
        key=d["key"],
        queue=d["queue"],
        topic=d["topic"],
        state=d["state"],
        due_at=instant(d.get("due_at")),
        scheduled_at=instant(d.get("scheduled_at")),
        attempt=d["attempt"],
        maybe_published=d["maybe_published"],
        tags=tuple(d["tags"]),
        headers=d["headers"],
        body=body,
        reason=d.get("reason", ""),
        route=d.get("route", ""),
        sealed_by=d.get("sealed_by", ""),
        end=_end(d.get("end")),
    )


def _end(d: dict[str, Any] | None) -> End | None:
    if d is None:
        return None
    return End(
        d["state"],
        instant(d.get("at")),
        d.get("place", ""),
        d.get("topic", ""),
        d.get("attempt", 0),
        d.get("reason", ""),
    )
