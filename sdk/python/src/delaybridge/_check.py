"""The limits of messages, which the bridge checks, too. The outbox checks them before it writes a row."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from datetime import timedelta

from ._wire import body_bytes
from .errors import InvalidError
from .model import Late, Message

MOST_SIZE = 960 << 10
"""Bytes of id, key, topic, headers and body together."""
_QUEUE = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_HEADER = re.compile(r"[!-9;-~]{1,255}")  # Printable ASCII without colon and space.


def invalid(field: str, value: str, limit: str) -> InvalidError:
    shown = value if len(value) <= 64 else value[:64] + "…"
    return InvalidError(f"{field} {shown!r}: {limit}", field=field)


def queue(name: str) -> None:
    if not _QUEUE.fullmatch(name):
        raise invalid("queue", name, "1 to 63 of a-z 0-9 _ -, the first a letter or a digit")


def identity(id: str, key: str) -> None:
    _name("id", id, 1)
    _name("key", key, 0)


def message(m: Message) -> dict[str, str]:
    """Checks all but the due time. Returns the headers as they are stored: with those of tags and late."""
    identity(m.id, m.key)
    _length("topic", m.topic, 1, 255)
    if _has_control(m.topic):
        raise invalid("topic", m.topic, "must be UTF-8 without control characters")
    headers = _headers(m)
    size = sum(len(t.encode()) for t in (m.id, m.key, m.topic, *headers, *headers.values())) + len(body_bytes(m.body))
    if size > MOST_SIZE:
        limit = f"id, key, topic, headers and body have {size} bytes together, allowed are {MOST_SIZE}"
        raise InvalidError(f"body of {len(body_bytes(m.body))} bytes: {limit}", field="body")
    return headers


def _headers(m: Message) -> dict[str, str]:
    if len(m.headers) > 64:
        raise invalid("header", f"{len(m.headers)} headers", "allowed are 64")
    for name, value in m.headers.items():
        _header(name, value)
    headers = dict(m.headers)
    if tags := joined_tags(m.tags):
        headers["delay-tags"] = tags
    if m.late is not None:
        headers["delay-late"] = _late(m.late)
    return headers


def _header(name: str, value: str) -> None:
    _length("header", name, 1, 255)
    if not _HEADER.fullmatch(name):
        raise invalid("header", name, "a name is printable ASCII without colon and space")
    if name.lower().startswith(("delay-", "nats-")) or name in ("CC", "BCC"):
        raise invalid("header", name, "delay-*, nats-*, CC and BCC are reserved")
    if _has_control(value.replace("\t", "")) or value != value.strip():
        raise invalid("header", name, "its value must be UTF-8 without control characters or outer spaces")


def joined_tags(tags: Iterable[str]) -> str:
    sorted_tags = sorted(set(tags), key=str.encode)
    if len(sorted_tags) > 8:
        raise invalid("tag", f"{len(sorted_tags)} tags", "allowed are 8")
    for tag in sorted_tags:
        _length("tag", tag, 1, 64)
        if "," in tag or not all(unicodedata.category(c)[0] in "LMNPS" for c in tag):
            raise invalid("tag", tag, "must be printable UTF-8 without spaces and commas")
    return ",".join(sorted_tags)


def _late(late: Late) -> str:
    if late.then not in ("publish", "dead", "drop"):
        raise invalid("late", late.then, "allowed are publish, dead and drop")
    after = late.after or timedelta()
    if late.then != "publish" and after < timedelta(milliseconds=1):
        raise invalid("late", str(after), "allowed are 1ms and more")
    return f"{late.then} {go_duration(after)}"


def go_duration(d: timedelta) -> str:
    """A duration as Go writes it: 1h0m0s, 1.5s, 250ms."""
    micros = d // timedelta(microseconds=1)
    if micros == 0:
        return "0s"
    if micros < 1000:
        return f"{micros}µs"
    if micros < 1_000_000:
        return _decimal(micros, 1000) + "ms"
    minutes, rest = divmod(micros, 60_000_000)
    text = _decimal(rest, 1_000_000) + "s"
    if minutes:
        text = f"{minutes % 60}m{text}"
    return f"{minutes // 60}h{text}" if minutes >= 60 else text


def _decimal(n: int, unit: int) -> str:
    whole, fraction = divmod(n, unit)
    digits = f"{fraction:0{len(str(unit)) - 1}d}".rstrip("0")
    return f"{whole}.{digits}" if digits else str(whole)


def _name(field: str, value: str, least: int) -> None:
    _length(field, value, least, 255)
    if _has_control(value) or value != value.strip():
        raise invalid(field, value, "must be UTF-8 without control characters or outer spaces")


def _length(field: str, value: str, least: int, most: int) -> None:
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise invalid(field, ascii(value), "must be UTF-8") from None
    if not least <= size <= most:
        raise invalid(field, value, f"{size} bytes, allowed are {least} to {most}")


def _has_control(text: str) -> bool:
    return any(c < " " or "\x7f" <= c < "\xa0" for c in text)
