"""What a call does next: the rules of sdk/vectors/README.md. Nothing here sends anything or waits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from ._wire import Answer, Request, problem
from .errors import DelaybridgeError, UnavailableError, UnknownError

T = TypeVar("T")

MOST_WAIT = 5.0
"""Seconds that a wait may take by chance, however often the call was repeated."""
FIRST_WAIT = 0.1
MOST_RETRY_AFTER = 10.0
_FINAL = frozenset({501, 505, 507})
_CHANGED_NOTHING = frozenset({"unavailable", "no_layout"})
_TELLS_ITSELF = frozenset({"unknown", "not_durable"})


@dataclass
class Servers:
    """The servers of a client, and the one that answered last."""

    urls: list[str]
    current: int


class Call(Generic[T]):
    """One call from its beginning to its end.

    The client sends a request to ``url``, for at most ``time_left`` seconds, and tells what came of it by ``answered``
    or ``lost``. Each returns how many seconds to wait before the next request, or None: then ``result`` is there. Or it
    raises the call's error.
    """

    result: T

    def __init__(
        self,
        request: Request[T],
        servers: Servers,
        timeout: float,
        attempt_timeout: float,
        now: float,
        random: Callable[[], float],
    ) -> None:
        self.request = request
        self._servers, self._server = servers, servers.current
        self._asked: set[int] = set()
        self._end, self._attempt_timeout, self._random = now + timeout, attempt_timeout + request.longer, random
        self._waits = 0
        self._is_open = False
        self._has_part = False
        self._has_renewed = False

    @property
    def url(self) -> str:
        return self._servers.urls[self._server] + self.request.target

    def time_left(self, now: float) -> float:
        return max(min(self._attempt_timeout, self._end - now), 0.001)

    def lost(self, detail: str, was_sent: bool, now: float) -> float | None:
        """There was no answer. was_sent: the request may have had an effect."""
        self._open(was_sent)
        return self._again(self._error(UnavailableError(detail)), 0, now)

    def answered(self, answer: Answer, now: float, renew: Callable[[], bool]) -> float | None:
        """There was an answer. renew tells whether there is another token now."""
        if 200 <= answer.status < 300:
            return self._done(answer, now)
        error = problem(answer, self.request.key)
        retry_after = _retry_after(answer)
        if answer.status == 429:
            return self._again(error, retry_after, now, stays=True)
        if error.code == "key_in_use":
            return self._again(error, 1, now, stays=True)
        if answer.status >= 500 and answer.status not in _FINAL:
            self._open(error.code not in _CHANGED_NOTHING)
            return self._again(error, retry_after, now)
        if answer.status == 401 and not self._has_renewed and renew():
            self._has_renewed = True
            return 0
        self._servers.current = self._server
        if self._has_part:
            return self._give_up(error)
        if self._is_open and error.code not in self.request.settled_by:
            raise self._unknown(error) from error
        raise error

    def _done(self, answer: Answer, now: float) -> float | None:
        try:
            result = self.request.read(answer)
        except (ValueError, KeyError, TypeError, AttributeError) as e:
            return self.lost(f"the answer cannot be read: {e}", True, now)
        self.result, self._is_open = result, False
        if self.request.repeatable(result):
            self._has_part = True
            return self._again(UnavailableError("done in part"), _retry_after(answer), now)
        self._servers.current = self._server
        return None

    def _open(self, may_have_effect: bool) -> None:
        self._is_open = self._is_open or (may_have_effect and self.request.is_change)

    def _again(self, error: DelaybridgeError, retry_after: float, now: float, stays: bool = False) -> float | None:
        """Chooses the server that is asked next, and the wait before."""
        if stays:
            self._asked.clear()
        else:
            self._asked.add(self._server)
            self._server = (self._server + 1) % len(self._servers.urls)
            if self._server not in self._asked:
                return 0 if now < self._end else self._give_up(error)
            self._asked.clear()
        wait = self._random() * min(MOST_WAIT, FIRST_WAIT * 2 ** min(self._waits, 10)) + retry_after
        self._waits += 1
        return wait if now + wait < self._end else self._give_up(error)

    def _give_up(self, error: DelaybridgeError) -> float | None:
        """Ends the call, without another request."""
        if self._has_part:
            if self._is_open:
                self.result = self.request.unsettled(self.result)
            return None
        if self._is_open and error.code not in _TELLS_ITSELF:
            raise self._unknown(error) from error
        if not self.request.is_change and error.code == "unknown":
            raise UnavailableError(error.detail, status=error.status) from error
        raise error

    def _unknown(self, error: DelaybridgeError) -> UnknownError:
        detail = f"the answer to a request was lost, and no other told what came of it; the last error: {error}"
        return UnknownError(detail, idempotency_key=self.request.key)

    def _error(self, error: DelaybridgeError) -> DelaybridgeError:
        error.idempotency_key = self.request.key
        return error


def _retry_after(answer: Answer) -> float:
    """Seconds; a date, which the bridge never sends, counts as nothing."""
    text = answer.headers.get("retry-after", "")
    return min(float(text), MOST_RETRY_AFTER) if text.isascii() and text.isdigit() else 0
