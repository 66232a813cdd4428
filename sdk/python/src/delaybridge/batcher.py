"""Batches in the background: many callers, few requests, and every message's outcome is told."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import threading
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass
from types import TracebackType
from typing import Generic, TypeVar

from . import _wire
from .aio import AsyncClient
from .client import Client
from .errors import DelaybridgeError, InvalidError
from .model import Message, ScheduleResult

Outcome = Future[ScheduleResult] | asyncio.Future[ScheduleResult]
F = TypeVar("F", bound=Outcome)


@dataclass
class _Entry(Generic[F]):
    encoded: bytes
    outcome: F


@dataclass(frozen=True)
class _Limits:
    messages: int
    bytes: int
    pending: int

    def check(self) -> _Limits:
        if not 1 <= self.messages <= _wire.MOST_BATCH:
            raise InvalidError(f"{self.messages}: must be 1 to {_wire.MOST_BATCH}", field="max_messages")
        for name, value in (("max_bytes", self.bytes), ("max_pending", self.pending)):
            if value < 1:
                raise InvalidError(f"{value}: must be 1 or more", field=name)
        return self


class _Queue(Generic[F]):
    """The messages that wait to be sent. Its owner locks it."""

    def __init__(self, limits: _Limits) -> None:
        self.limits = limits
        self._entries: deque[_Entry[F]] = deque()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, entry: _Entry[F]) -> None:
        self._entries.append(entry)
        self._bytes += len(entry.encoded) + 1

    def is_enough(self) -> bool:
        """Whether a request would be full."""
        return len(self._entries) >= self.limits.messages or self._bytes >= self.limits.bytes

    def cut(self) -> list[_Entry[F]]:
        """Takes the messages of the next request."""
        batch: list[_Entry[F]] = []
        size = len(_wire.OPENING) + len(_wire.CLOSING) - 1  # There is one comma less than messages.
        while self._entries and len(batch) < self.limits.messages:
            more = len(self._entries[0].encoded) + 1
            if batch and size + more > self.limits.bytes:
                break
            size += more
            self._bytes -= more
            batch.append(self._entries.popleft())
        return batch


class Batcher:
    """Schedules messages of one queue in batches, by one thread. It is safe for threads; close it, or use it in a
    ``with``: closing sends what waits.

    A request leaves when ``max_messages`` or ``max_bytes`` are there, or ``linger`` seconds after its first message.
    Up to ``max_pending`` messages wait; then ``add`` waits for room. Nothing is ever dropped: ``add`` returns a future
    with the message's result or error. At the interpreter's end, a Batcher that was not closed is closed. Callbacks of
    futures run in its thread, so they must not call it. Make it after a fork, as the client.
    """

    def __init__(
        self,
        client: Client,
        queue: str,
        *,
        max_messages: int = 500,
        max_bytes: int = 1 << 20,
        linger: float = 0.005,
        max_pending: int = 10_000,
    ) -> None:
        self._client, self._name, self._linger = client, queue, linger
        self._queue: _Queue[Future[ScheduleResult]] = _Queue(_Limits(max_messages, max_bytes, max_pending).check())
        self._changed = threading.Condition()
        self._unsent = 0  # waiting or in a request
        self._flushing = 0
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=f"delaybridge-batcher-{queue}", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def __enter__(self) -> Batcher:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def add(self, message: Message, *, timeout: float | None = None) -> Future[ScheduleResult]:
        """Adds a message and returns its outcome to be. If ``max_pending`` messages wait, it waits for room, for
        ``timeout`` seconds at most; then it raises TimeoutError. A message that is cancelled by its future before its
        request leaves is not sent."""
        entry = _Entry(_wire.encode(message), Future[ScheduleResult]())
        with self._changed:
            has_room = self._changed.wait_for(
                lambda: self._closed or self._unsent < self._queue.limits.pending, timeout
            )
            if self._closed:
                raise RuntimeError("the Batcher is closed")
            if not has_room:
                raise TimeoutError(f"{self._unsent} messages wait: no room in {timeout} s")
            self._queue.add(entry)
            self._unsent += 1
            if len(self._queue) == 1 or self._queue.is_enough():
                self._changed.notify_all()
        return entry.outcome

    def flush(self) -> None:
        """Sends what was added, without waiting for more, and waits until all of it has an outcome."""
        with self._changed:
            self._flushing += 1
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._unsent == 0)
            self._flushing -= 1

    def close(self) -> None:
        """Sends what was added, and waits until all of it has an outcome: for each request, as long as a call of the
        client may take. ``add`` fails from now on."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join()
        atexit.unregister(self.close)

    def _run(self) -> None:
        while batch := self._next():
            sent = [e for e in batch if e.outcome.set_running_or_notify_cancel()]
            try:
                if sent:
                    request = _wire.schedule_batch(self._name, [e.encoded for e in sent], None)
                    items = self._client._run(request, None, None)
                    for entry, item in zip(sent, items, strict=True):
                        _settle(entry.outcome, item)
            except BaseException as e:  # Whatever it is, callers wait for it.
                for entry in sent:
                    if not entry.outcome.done():
                        entry.outcome.set_exception(e)
            with self._changed:
                self._unsent -= len(batch)
                self._changed.notify_all()

    def _next(self) -> list[_Entry[Future[ScheduleResult]]]:
        """Waits for the next request. An empty one is the end."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._queue) > 0 or self._closed)
            self._changed.wait_for(lambda: self._queue.is_enough() or self._closed or self._flushing > 0, self._linger)
            return self._queue.cut()


class AsyncBatcher:
    """Batcher, for asyncio: the same options. Use it in an ``async with``; its end sends what waits."""

    def __init__(
        self,
        client: AsyncClient,
        queue: str,
        *,
        max_messages: int = 500,
        max_bytes: int = 1 << 20,
        linger: float = 0.005,
        max_pending: int = 10_000,
    ) -> None:
        self._client, self._name, self._linger = client, queue, linger
        self._queue: _Queue[asyncio.Future[ScheduleResult]] = _Queue(
            _Limits(max_messages, max_bytes, max_pending).check()
        )
        self._changed = asyncio.Condition()
        self._unsent = 0
        self._flushing = 0
        self._closed = False
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> AsyncBatcher:
        self._task = asyncio.create_task(self._run(), name=f"delaybridge-batcher-{self._name}")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def add(self, message: Message) -> asyncio.Future[ScheduleResult]:
        """As Batcher.add. To bound the wait for room, use asyncio.timeout or asyncio.wait_for."""
        entry = _Entry(_wire.encode(message), asyncio.get_running_loop().create_future())
        async with self._changed:
            await self._changed.wait_for(lambda: self._closed or self._unsent < self._queue.limits.pending)
            if self._closed or self._task is None:
                raise RuntimeError("the AsyncBatcher is closed, or was not entered by async with")
            self._queue.add(entry)
            self._unsent += 1
            if len(self._queue) == 1 or self._queue.is_enough():
                self._changed.notify_all()
        return entry.outcome

    async def flush(self) -> None:
        """As Batcher.flush."""
        async with self._changed:
            self._flushing += 1
            self._changed.notify_all()
            try:
                await self._changed.wait_for(lambda: self._unsent == 0)
            finally:
                self._flushing -= 1

    async def aclose(self) -> None:
        """As Batcher.close."""
        async with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._task is not None:
            await asyncio.shield(self._task)

    async def _run(self) -> None:
        while batch := await self._next():
            sent = [e for e in batch if not e.outcome.cancelled()]
            try:
                if sent:
                    request = _wire.schedule_batch(self._name, [e.encoded for e in sent], None)
                    items = await self._client._run(request, None, None)
                    for entry, item in zip(sent, items, strict=True):
                        if not entry.outcome.done():  # Its caller may have gone.
                            _settle(entry.outcome, item)
            except BaseException as e:  # Whatever it is, callers wait for it.
                for entry in sent:
                    if not entry.outcome.done():
                        entry.outcome.set_exception(e)
                if isinstance(e, asyncio.CancelledError):
                    raise
            finally:
                async with self._changed:
                    self._unsent -= len(batch)
                    self._changed.notify_all()

    async def _next(self) -> list[_Entry[asyncio.Future[ScheduleResult]]]:
        async with self._changed:
            await self._changed.wait_for(lambda: len(self._queue) > 0 or self._closed)
            if not self._queue.is_enough() and not self._closed and not self._flushing:
                full = self._changed.wait_for(lambda: self._queue.is_enough() or self._closed or self._flushing > 0)
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(full, self._linger)
            return self._queue.cut()


def _settle(outcome: Outcome, item: ScheduleResult | DelaybridgeError) -> None:
    if isinstance(item, DelaybridgeError):
        outcome.set_exception(item)
    else:
        outcome.set_result(item)
