"""The vectors, and their neutral form in the words of this SDK."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import asdict
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from delaybridge import DelaybridgeError, Late, Message

VECTORS = Path(__file__).parents[2] / "vectors"
VALUES = {
    "$ID": "01JFXQ7Z8M3V5K2N4P6R8T0W1Y",
    "$DUE": "2031-01-31T09:00:00.000Z",
    "$THEN": "2031-01-30T09:00:00.000Z",
    "$DETAIL": "why",
}
Object = dict[str, Any]


def read(file: str) -> list[Object]:
    (vectors,) = json.loads((VECTORS / file).read_text()).values()
    assert vectors
    return list(vectors)


def fill(value: Any) -> Any:
    """Puts values for placeholders, but for $KEY."""
    if isinstance(value, dict):
        return {name: fill(v) for name, v in value.items()}
    if isinstance(value, list):
        return [fill(v) for v in value]
    return VALUES.get(value, value) if isinstance(value, str) else value


def instant(text: str) -> datetime:
    whole, fraction, zone = re.fullmatch(r"([^.Z+]*)(\.\d+)?(Z|[+-].*)", text).groups()  # type: ignore[union-attr]
    at = datetime.fromisoformat(whole + ("+00:00" if zone == "Z" else zone))
    return at + timedelta(seconds=float(fraction or 0))


def duration(c: Object, name: str) -> timedelta | None:
    return timedelta(milliseconds=c[name]) if name in c else None


def message(c: Object) -> Message:
    late = c.get("late")
    return Message(
        c["topic"],
        after=duration(c, "in_ms"),
        at=instant(c["at"]) if "at" in c else None,
        id=c.get("id", ""),
        key=c.get("key", ""),
        body=base64.b64decode(c["bytes_base64"]) if "bytes_base64" in c else c.get("body", b""),
        headers=c.get("headers", {}),
        tags=c.get("tags", ()),
        spread=duration(c, "spread_ms"),
        max_wait=duration(c, "max_wait_ms"),
        late=late and Late(late["then"], duration(late, "after_ms")),
        conflict=c.get("conflict"),
    )


def call(c: Object) -> tuple[str, tuple[Any, ...], Object]:
    """The method of a client, and its arguments."""
    named: Object = {n: c[n] for n in ("traceparent", "idempotency_key") if n in c}
    match c["do"]:
        case "schedule":
            return "schedule", (c["queue"], message(c)), named
        case "schedule_batch":
            return "schedule_batch", (c["queue"], [message(m) for m in c["messages"]]), named
        case "cancel_all":
            return "cancel_all", (c["queue"],), named | {n: c[n] for n in ("tag", "key") if n in c}
    named |= {n: c[n] for n in ("key", "with_body") if n in c}
    if c["do"] == "reschedule":
        named |= {"after": duration(c, "in_ms"), "at": instant(c["at"]) if "at" in c else None}
        named["spread"] = duration(c, "spread_ms")
    return c["do"], (c["queue"], c["id"]), named


def same(got: object, v: Object) -> None:
    """Compares what a caller got with the vector's result or error."""
    if "error" in v:
        same_error(got, fill(v["error"]))
    elif isinstance(v["result"], list):
        assert isinstance(got, list), got
        assert len(got) == len(v["result"])
        for one, want in zip(got, v["result"], strict=True):
            same(one, want if "error" in want else {"result": want})
    else:
        same_result(got, fill(v["result"]))


def same_error(got: object, want: Object) -> None:
    assert isinstance(got, DelaybridgeError), got
    due = want.get("due_at")
    expected = {name: want.get(name) for name in ("code", "status", "field", "id")} | {"due_at": due and instant(due)}
    assert {name: getattr(got, name) for name in expected} == expected, got
    assert got.code == type(got).code
    assert got.detail


def same_result(got: Any, want: Object) -> None:
    assert not isinstance(got, Exception), repr(got)
    found: Object = plain(asdict(got))
    if "bytes_base64" in want:
        want["body"] = base64.b64decode(want.pop("bytes_base64"))
    for name in ("due_at", "scheduled_at"):
        if name in want:
            want[name] = instant(want[name])
    if "end" in want:
        want["end"]["at"] = instant(want["end"]["at"])
    assert found == want


def plain(found: Object) -> Object:
    """Without what is not there, as in JSON."""
    kept = {n: v for n, v in found.items() if v not in (None, "") or n == "key"}
    if "tags" in kept:
        kept["tags"] = list(kept["tags"])
    if kept.get("end"):
        kept["end"] = plain(kept["end"])
    return kept
