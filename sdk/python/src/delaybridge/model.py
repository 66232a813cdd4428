"""What calls take and return."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal

from .errors import DelaybridgeError

Conflict = Literal["reject", "keep", "replace"]
"""What to do if the identity is taken: ``reject`` (DuplicateError, the default), ``keep`` the message that is there, or
``replace`` it."""


@dataclass(frozen=True)
class Late:
    """How late a message may be, and what happens to it after that.

    ``then`` is ``publish`` (however late), ``dead`` (it goes to the dead letters) or ``drop``. ``after`` counts from
    the due time, 1 ms or more, and has no meaning with ``publish``.
    """

    then: Literal["publish", "dead", "drop"]
    after: timedelta | None = None


@dataclass(frozen=True)
class Message:
    """A message to schedule. It is due ``after`` a delay, or ``at`` an instant; give one of them.

    ``after`` counts from when the bridge accepts it; 0 or less publishes at once. ``at`` needs a time zone. Both count
    to the millisecond, rounded up, and reach 10 years at most.

    ``id`` names the message within its ``key``; without one, a new one is made. Messages of one key and topic are
    published in due order. Together with key, topic and headers, the body has 960 KiB at most. ``headers`` pass
    through unchanged: 64 at most; ``delay-*`` and ``nats-*`` are reserved. ``tags`` group messages: 8 at most.
    ``spread`` adds up to that much to the due time, by a hash of the identity, so that a wave does not come at once.
    ``max_wait`` debounces: with ``after`` and ``conflict="replace"``, each call puts the message off, but not beyond
    that time after the first one.
    """

    topic: str
    after: timedelta | None = None
    at: datetime | None = None
    id: str = ""
    key: str = ""
    body: bytes | str = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    tags: Sequence[str] = ()
    spread: timedelta | None = None
    max_wait: timedelta | None = None
    late: Late | None = None
    conflict: Conflict | None = None


@dataclass(frozen=True)
class ScheduleResult:
    """What a schedule did.

    ``status`` is ``created``, ``replaced`` or ``existing`` (with ``conflict="keep"``). ``due_at`` is by Redis' clock.
    ``not_durable``: it was done, but not confirmed in time as the queue's durability asks. ``replayed``: the answer is
    that of an earlier request under the same idempotency key.
    """

    id: str
    key: str
    status: str
    due_at: datetime | None
    not_durable: bool = False
    replayed: bool = False


BatchItem = ScheduleResult | DelaybridgeError
"""The outcome of one message of a batch: a result, or the error that a call for it alone would raise."""


@dataclass(frozen=True)
class ChangeResult:
    """What a cancel or a reschedule did. ``maybe_published``: it was done, but a copy may be out already."""

    status: str
    maybe_published: bool
    not_durable: bool = False


@dataclass(frozen=True)
class CancelCount:
    """The results of a ``cancel_all``.

    ``too_late`` messages were in flight: each is published, or waits again soon. ``more``: the call's time was over.
    Repeat the call until all are 0. If an answer was lost on the way, messages that it had counted are not in ``done``.
    """

    done: int
    maybe_published: int
    too_late: int
    more: bool
    not_durable: bool = False


@dataclass(frozen=True)
class End:
    """How a message ended: ``state`` is ``published``, ``cancelled``, ``dropped``, ``purged`` or ``dead``."""

    state: str
    at: datetime | None = None
    place: str = ""
    topic: str = ""
    attempt: int = 0
    reason: str = ""


@dataclass(frozen=True)
class StoredMessage:
    """A message as it is now. ``state`` is ``scheduled``, ``parked``, ``in_flight`` or ``dead``; from a queue's history
    also ``published``, ``cancelled``, ``dropped`` or ``purged``. ``body`` is None if it was not asked for."""

    id: str
    key: str
    queue: str
    topic: str
    state: str
    due_at: datetime | None
    scheduled_at: datetime | None
    attempt: int
    maybe_published: bool
    tags: tuple[str, ...]
    headers: dict[str, str]
    body: bytes | None = None
    reason: str = ""
    route: str = ""
    sealed_by: str = ""
    end: End | None = None
