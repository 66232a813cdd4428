"""The client for programs with threads."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import TypeVar

import httpx

from . import _wire
from ._transport import MOST_ANSWER, UNSENT, Base, Clock, Token, answer, headers, limits, options
from ._wire import Answer, Request
from .model import BatchItem, CancelCount, ChangeResult, Message, ScheduleResult, StoredMessage

T = TypeVar("T")


class Client(Base):
    """Schedules messages through the HTTP API of one or more bridges. It is safe for threads, and keeps connections
    open; close it, or use it in a ``with``.

    ``servers`` are the bridges' addresses, such as ``https://bridge-1:8080``. The client begins with one by chance,
    stays with it, and goes on to the next if it fails.

    ``token`` is the bearer token, or a function that returns it; ``token_file`` a file with it, which is read again
    after it was changed.

    ``timeout`` is how many seconds a call may take with all its repetitions. The default is 30: if a bridge dies with a
    request, the others answer a repetition under the same key after 15 s. ``attempt_timeout`` is for each request.

    ``ca_file`` has the roots of the bridges' certificates in PEM; ``cert_file`` and ``key_file`` are the client's own.
    ``http`` is an httpx.Client of your own instead, for example with a proxy; closing it is up to you.

    Every call raises DelaybridgeError, of the class of its code. A failed request is sent again with growing waits,
    under one Idempotency-Key where it schedules, so that it has one effect.
    """

    def __init__(
        self,
        servers: str | Sequence[str],
        *,
        token: Token = None,
        token_file: str | os.PathLike[str] | None = None,
        timeout: float = 30,
        attempt_timeout: float = 5,
        ca_file: str | None = None,
        cert_file: str | None = None,
        key_file: str | None = None,
        http: httpx.Client | None = None,
        _clock: Clock | None = None,
        _sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        super().__init__(servers, token, token_file, timeout, attempt_timeout, _clock)
        self._sleep = _sleep
        self._owned = None if http else httpx.Client(**options(self._servers.urls, ca_file, cert_file, key_file))
        self._http = http or self._owned

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections."""
        if self._owned:
            self._owned.close()

    def schedule(
        self,
        queue: str,
        message: Message,
        *,
        idempotency_key: str | None = None,
        traceparent: str | None = None,
        timeout: float | None = None,
    ) -> ScheduleResult:
        """Schedules a message.

        ``idempotency_key`` is for callers that repeat calls themselves, for example after a restart: for 24 h, the same
        call under the same key has no second effect. Without one, the call makes one. ``traceparent`` is the trace
        context that the bridge and consumers continue. Raises DuplicateError, TooLateError (with ``replace``),
        FullError, UnknownError and those of all calls.
        """
        return self._run(_wire.schedule(queue, message, idempotency_key), traceparent, timeout)

    def schedule_batch(
        self,
        queue: str,
        messages: Sequence[Message],
        *,
        idempotency_key: str | None = None,
        traceparent: str | None = None,
        timeout: float | None = None,
    ) -> list[BatchItem]:
        """Schedules up to 1,000 messages in one request, of 24 MiB at most, and returns the outcome of each, by index:
        a result or an error. A refused message does not fail the others."""
        encoded = [_wire.encode(m) for m in messages]
        return self._run(_wire.schedule_batch(queue, encoded, idempotency_key), traceparent, timeout)

    def cancel(
        self, queue: str, id: str, *, key: str = "", traceparent: str | None = None, timeout: float | None = None
    ) -> ChangeResult:
        """Cancels a message, so that it is never published. Raises NotFoundError, TooLateError, UnknownError and those
        of all calls. If an answer was lost and the message is not there any more, that is UnknownError: this call may
        have cancelled it, or it was published before."""
        return self._run(_wire.cancel(queue, id, key), traceparent, timeout)

    def reschedule(
        self,
        queue: str,
        id: str,
        *,
        key: str = "",
        after: timedelta | None = None,
        at: datetime | None = None,
        spread: timedelta | None = None,
        traceparent: str | None = None,
        timeout: float | None = None,
    ) -> ChangeResult:
        """Moves a waiting message to another due time; a dead letter is put back. Its errors are those of cancel."""
        return self._run(_wire.reschedule(queue, id, key, after, at, spread), traceparent, timeout)

    def publish_now(
        self, queue: str, id: str, *, key: str = "", traceparent: str | None = None, timeout: float | None = None
    ) -> ChangeResult:
        """Makes a waiting message due now; a dead letter is put back. Its errors are those of cancel."""
        return self._run(_wire.publish_now(queue, id, key), traceparent, timeout)

    def get(
        self,
        queue: str,
        id: str,
        *,
        key: str = "",
        with_body: bool = False,
        traceparent: str | None = None,
        timeout: float | None = None,
    ) -> StoredMessage:
        """Returns a message, or how it ended if the queue keeps a history. Raises NotFoundError."""
        return self._run(_wire.get(queue, id, key, with_body), traceparent, timeout)

    def cancel_all(
        self, queue: str, *, tag: str = "", key: str = "", traceparent: str | None = None, timeout: float | None = None
    ) -> CancelCount:
        """Cancels all messages with the tag, the key, or both. Repeat it until ``too_late`` is 0 and ``more`` false."""
        return self._run(_wire.cancel_all(queue, tag, key), traceparent, timeout)

    def _run(self, request: Request[T], traceparent: str | None, timeout: float | None) -> T:
        call = self._begin(request, timeout)
        while True:
            token, seconds = self._token(), call.time_left(self._clock.now())
            try:
                found = self._ask(request, call.url, headers(request, token, traceparent), seconds)
            except httpx.HTTPError as e:
                wait = call.lost(_text(e), not isinstance(e, UNSENT), self._clock.now())
            else:
                wait = call.answered(found, self._clock.now(), self._other_than(token))
            if wait is None:
                return call.result
            if wait:
                self._sleep(wait)

    def _ask(self, request: Request[T], url: str, headers: dict[str, str], seconds: float) -> Answer:
        end = time.monotonic() + seconds
        assert self._http is not None
        asked = self._http.stream(request.method, url, content=request.body, headers=headers, timeout=limits(seconds))
        body = bytearray()
        with asked as response:
            for part in response.iter_bytes():
                body += part
                if time.monotonic() > end or len(body) > MOST_ANSWER:
                    raise httpx.ReadTimeout("the answer takes too long, or is too large")
        return answer(response, bytes(body))


def _text(e: httpx.HTTPError) -> str:
    return f"{type(e).__name__}: {e}" if str(e) else type(e).__name__
