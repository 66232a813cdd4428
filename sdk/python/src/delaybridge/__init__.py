"""Schedules messages that delaybridge publishes to Kafka, RabbitMQ or NATS when they are due.

Client and AsyncClient speak the HTTP API; Batcher and AsyncBatcher gather messages into batches in the background;
delaybridge.outbox writes messages into a table in the caller's own transaction; delaybridge.testing replaces the
bridge in tests, with a clock that is moved.
"""

from ._transport import VERSION as __version__
from .aio import AsyncClient
from .batcher import AsyncBatcher, Batcher
from .client import Client
from .errors import (
    DelaybridgeError,
    DuplicateError,
    FailedError,
    ForbiddenError,
    FullError,
    InvalidError,
    KeyInUseError,
    KeyReusedError,
    NoLayoutError,
    NotDurableError,
    NotFoundError,
    RateLimitedError,
    ReadOnlyError,
    TooLateError,
    UnauthorizedError,
    UnavailableError,
    UnknownError,
)
from .model import BatchItem, CancelCount, ChangeResult, Conflict, End, Late, Message, ScheduleResult, StoredMessage

__all__ = [
    "AsyncBatcher",
    "AsyncClient",
    "BatchItem",
    "Batcher",
    "CancelCount",
    "ChangeResult",
    "Client",
    "Conflict",
    "DelaybridgeError",
    "DuplicateError",
    "End",
    "FailedError",
    "ForbiddenError",
    "FullError",
    "InvalidError",
    "KeyInUseError",
    "KeyReusedError",
    "Late",
    "Message",
    "NoLayoutError",
    "NotDurableError",
    "NotFoundError",
    "RateLimitedError",
    "ReadOnlyError",
    "ScheduleResult",
    "StoredMessage",
    "TooLateError",
    "UnauthorizedError",
    "UnavailableError",
    "UnknownError",
    "__version__",
]
