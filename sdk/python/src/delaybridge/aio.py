"""The client for asynchronous programs, on asyncio or trio."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import TypeVar

import anyio
import httpx

from . import _wire
from ._transport import MOST_ANSWER, UNSENT, Base, Clock, Token, answer, headers, limits, options
from ._wire import Answer, Request
from .client import _text
from .model import BatchItem, CancelCount, ChangeResult, Message, ScheduleResult, StoredMessage

T = TypeVar("T")


class AsyncClient(Base):
    """Client, for asyncio and trio: the same calls, options and errors. ``http`` is an httpx.AsyncClient. If a task is
    cancelled while it schedules, the outcome is not known; an ``idempotency_key`` of your own lets you repeat it."""

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
        http: httpx.AsyncClient | None = None,
        _clock: Clock | None = None,
        _sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
    ) -> None:
        super().__init__(servers, token, token_file, timeout, attempt_timeout, _clock)
        self._sleep = _sleep
        self._owned = None if http else httpx.AsyncClient(**options(self._servers.urls, ca_file, cert_file, key_file))
        self._http = http or self._owned

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Closes the connections."""
        if self._owned:
            await self._owned.aclose()

    async def schedule(
        self,
        queue: str,
        message: Message,
        *,
        idempotency_key: str | None = None,
        traceparent: str | None = None,
        timeout: float | None = None,
    ) -> ScheduleResult:
        """As Client.schedule."""
        return await self._run(_wire.schedule(queue, message, idempotency_key), traceparent, timeout)

    async def schedule_batch(
        self,
        queue: str,
        messages: Sequence[Message],
        *,
        idempotency_key: str | None = None,
        traceparent: str | None = None,
        timeout: float | None = None,
    ) -> list[BatchItem]:
        """As Client.schedule_batch."""
        encoded = [_wire.encode(m) for m in messages]
        return await self._run(_wire.schedule_batch(queue, encoded, idempotency_key), traceparent, timeout)

    async def cancel(
        self, queue: str, id: str, *, key: str = "", traceparent: str | None = None, timeout: float | None = None
    ) -> ChangeResult:
        """As Client.cancel."""
        return await self._run(_wire.cancel(queue, id, key), traceparent, timeout)

    async def reschedule(
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
        """As Client.reschedule."""
        return await self._run(_wire.reschedule(queue, id, key, after, at, spread), traceparent, timeout)

    async def publish_now(
        self, queue: str, id: str, *, key: str = "", traceparent: str | None = None, timeout: float | None = None
    ) -> ChangeResult:
        """As Client.publish_now."""
        return await self._run(_wire.publish_now(queue, id, key), traceparent, timeout)

    async def get(
        self,
        queue: str,
        id: str,
        *,
        key: str = "",
        with_body: bool = False,
        traceparent: str | None = None,
        timeout: float | None = None,
    ) -> StoredMessage:
        """As Client.get."""
        return await self._run(_wire.get(queue, id, key, with_body), traceparent, timeout)

    async def cancel_all(
        self, queue: str, *, tag: str = "", key: str = "", traceparent: str | None = None, timeout: float | None = None
    ) -> CancelCount:
        """As Client.cancel_all."""
        return await self._run(_wire.cancel_all(queue, tag, key), traceparent, timeout)

    async def _run(self, request: Request[T], traceparent: str | None, timeout: float | None) -> T:
        call = self._begin(request, timeout)
        while True:
            token, seconds = self._token(), call.time_left(self._clock.now())
            progress = _Progress()
            try:
                with anyio.fail_after(seconds):
                    found = await self._ask(request, call.url, headers(request, token, traceparent), seconds, progress)
            except TimeoutError:
                wait = call.lost("no answer in time", progress.was_sent, self._clock.now())
            except httpx.HTTPError as e:
                wait = call.lost(_text(e), not isinstance(e, UNSENT), self._clock.now())
            else:
                wait = call.answered(found, self._clock.now(), self._other_than(token))
            if wait is None:
                return call.result
            if wait:
                await self._sleep(wait)

    async def _ask(
        self, request: Request[T], url: str, headers: dict[str, str], seconds: float, progress: _Progress
    ) -> Answer:
        assert self._http is not None
        asked = self._http.stream(
            request.method,
            url,
            content=request.body,
            headers=headers,
            timeout=limits(seconds),
            extensions={"trace": progress.note},
        )
        body = bytearray()
        async with asked as response:
            async for part in response.aiter_bytes():
                body += part
                if len(body) > MOST_ANSWER:
                    raise httpx.ReadTimeout("the answer is too large")
        return answer(response, bytes(body))


class _Progress:
    """How far a request came, which a timeout of all of it does not tell."""

    def __init__(self) -> None:
        self._has_connected = self._has_sent = False

    async def note(self, event: str, _: object) -> None:
        self._has_connected = self._has_connected or event.startswith("connection.")
        self._has_sent = self._has_sent or "send_request_headers" in event

    @property
    def was_sent(self) -> bool:
        """Whether the request may have left. A way to send that tells nothing counts as one that has sent."""
        return self._has_sent or not self._has_connected
