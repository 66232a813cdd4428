"""The errors of calls, one class for each code of the API."""

from __future__ import annotations

from datetime import datetime


class DelaybridgeError(Exception):
    """The base of all errors of this package.

    ``code`` is for programs, and stable; ``detail`` is for people. ``status`` is the HTTP status, or None if the
    client itself made the error. ``field`` names what is invalid. ``id`` and ``due_at`` are what is known of the
    message nevertheless. ``idempotency_key`` is the key of a call that scheduled: the same call under it has no second
    effect.
    """

    code: str = "failed"

    def __init__(
        self,
        detail: str,
        *,
        code: str | None = None,
        status: int | None = None,
        field: str | None = None,
        id: str | None = None,
        due_at: datetime | None = None,
        idempotency_key: str | None = None,
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.code = code or type(self).code
        self.status = status
        self.field = field
        self.id = id
        self.due_at = due_at
        self.idempotency_key = idempotency_key

    def __str__(self) -> str:
        return f"{self.code}: {self.detail}"


class InvalidError(DelaybridgeError):
    """Something is outside a limit; ``field`` says what. Nothing was changed."""

    code = "invalid"


class UnauthorizedError(DelaybridgeError):
    """The bridge does not know the token."""

    code = "unauthorized"


class ForbiddenError(DelaybridgeError):
    """The token may not do this."""

    code = "forbidden"


class ReadOnlyError(DelaybridgeError):
    """The bridge refuses every change (``admin.read_only``)."""

    code = "read_only"


class NotFoundError(DelaybridgeError):
    """There is no such message: it was published, cancelled or never scheduled. Or there is no such queue."""

    code = "not_found"


class DuplicateError(DelaybridgeError):
    """A message of that id and key waits, is being published, or is in the dead letters. Nothing was changed."""

    code = "duplicate"


class TooLateError(DelaybridgeError):
    """The message is being published right now. Nothing was changed."""

    code = "too_late"


class KeyReusedError(DelaybridgeError):
    """The idempotency key was used for another request in the last 24 h."""

    code = "key_reused"


class KeyInUseError(DelaybridgeError):
    """Another process is making the first request under this idempotency key."""

    code = "key_in_use"


class RateLimitedError(DelaybridgeError):
    """The bridge had too many calls for as long as this one could wait. Nothing was changed."""

    code = "rate_limited"


class FullError(DelaybridgeError):
    """Redis has reached its memory limit, or the queue its budget. Nothing was changed."""

    code = "full"


class NoLayoutError(DelaybridgeError):
    """The queue does not exist in Redis yet. Nothing was changed."""

    code = "no_layout"


class UnavailableError(DelaybridgeError):
    """No bridge was reached, or none reached Redis. Nothing was changed."""

    code = "unavailable"


class UnknownError(DelaybridgeError):
    """An answer was lost, so it is unknown whether the call took effect.

    A call that scheduled can be made again under its ``idempotency_key``, within 24 h: it has no second effect, and
    tells what became of the first one.
    """

    code = "unknown"


class NotDurableError(DelaybridgeError):
    """The call was done, but replicas or the disk did not confirm it in time."""

    code = "not_durable"


class FailedError(DelaybridgeError):
    """The bridge failed in a way that it does not know."""

    code = "failed"


_by_code: dict[str, type[DelaybridgeError]] = {kind.code: kind for kind in DelaybridgeError.__subclasses__()}


def error_of(
    code: str,
    detail: str,
    *,
    status: int | None = None,
    field: str | None = None,
    id: str | None = None,
    due_at: datetime | None = None,
    idempotency_key: str | None = None,
) -> DelaybridgeError:
    """The error of a code; one that this version does not know is a DelaybridgeError with that code."""
    kind = _by_code.get(code, DelaybridgeError)
    return kind(detail, code=code, status=status, field=field, id=id, due_at=due_at, idempotency_key=idempotency_key)
