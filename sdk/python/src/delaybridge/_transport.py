"""What both clients have: their options, tokens, and HTTP requests."""

from __future__ import annotations

import json
import os
import random
import ssl
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx

from ._call import Call, Servers
from ._wire import Answer, Request
from .errors import InvalidError

T = TypeVar("T")

VERSION = "0.1.0"
MOST_ANSWER = 32 << 20
"""Bytes of an answer that a client reads."""
# Nothing of the request has left when these are raised.
UNSENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol, httpx.ProxyError)
LIMITS = httpx.Limits(max_connections=100, max_keepalive_connections=20, keepalive_expiry=30)

Token = str | Callable[[], str] | None


@dataclass
class Clock:
    """The client's clock, which tests replace."""

    now: Callable[[], float] = time.monotonic
    random: Callable[[], float] = random.random


class TokenFile:
    """The token in a file, which is read again after it was changed."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = path
        self._seen: tuple[int, int, int] | None = None
        self._token = ""

    def __call__(self) -> str:
        try:
            stat = os.stat(self._path)
            seen = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
            if seen != self._seen:
                with open(self._path, encoding="utf-8") as file:
                    self._token, self._seen = file.read().strip(), seen
        except OSError as e:
            if not self._token:  # Otherwise it is being replaced, and the old one may still be good.
                raise InvalidError(f"token_file {os.fspath(self._path)}: {e.strerror}", field="token_file") from e
        return self._token


class Base:
    """A client without its way to send."""

    def __init__(
        self,
        servers: str | Sequence[str],
        token: Token,
        token_file: str | os.PathLike[str] | None,
        timeout: float,
        attempt_timeout: float,
        clock: Clock | None,
    ) -> None:
        self._clock = clock or Clock()
        urls = [_base(u) for u in ([servers] if isinstance(servers, str) else servers)]
        if not urls:
            raise InvalidError("give one server or more", field="servers")
        for name, value in (("timeout", timeout), ("attempt_timeout", attempt_timeout)):
            if value <= 0:
                raise InvalidError(f"{name} {value}: must be more than 0 seconds", field=name)
        if token is not None and token_file is not None:
            raise InvalidError("give token or token_file, and not both", field="token_file")
        self._servers = Servers(urls, int(self._clock.random() * len(urls)))
        self._timeout, self._attempt_timeout = timeout, attempt_timeout
        if token_file is not None:
            token = TokenFile(token_file)
        self._token: Callable[[], str] = token if callable(token) else lambda: token or ""

    def _begin(self, request: Request[T], timeout: float | None) -> Call[T]:
        timeout = self._timeout if timeout is None else timeout
        return Call(request, self._servers, timeout, self._attempt_timeout, self._clock.now(), self._clock.random)

    def _other_than(self, sent: str) -> Callable[[], bool]:
        """Whether there is another token now."""
        return lambda: self._token() != sent


def headers(request: Request[Any], token: str, traceparent: str | None) -> dict[str, str]:
    all = dict(request.headers)
    if request.body is not None:
        all["Content-Type"] = "application/json"
    if token:
        all["Authorization"] = f"Bearer {token}"
    if traceparent:
        all["traceparent"] = traceparent
    return all


def options(servers: list[str], ca_file: str | None, cert_file: str | None, key_file: str | None) -> dict[str, Any]:
    """The arguments of httpx' clients."""
    # Loading the roots takes longer than all else; redirects are not followed.
    context: ssl.SSLContext | bool = any(url.startswith("https:") for url in servers)
    if ca_file or cert_file:
        context = ssl.create_default_context(cafile=ca_file)
        if cert_file:
            context.load_cert_chain(cert_file, key_file)
    # The bridges are on the caller's own network: a proxy is used only if httpx is given with one.
    return {
        "verify": context,
        "limits": LIMITS,
        "trust_env": False,
        "headers": {"User-Agent": f"delaybridge-python/{VERSION}"},
    }


def limits(seconds: float) -> httpx.Timeout:
    """The timeouts of a request, of which half is for getting a connection: then it is known that nothing was sent."""
    return httpx.Timeout(seconds, connect=seconds / 2, pool=seconds / 2)


def answer(response: httpx.Response, body: bytes) -> Answer:
    data: object = None
    if body:
        try:
            data = json.loads(body)
        except ValueError:
            data = None
    named = {name.lower(): value for name, value in response.headers.items()}
    return Answer(response.status_code, named, data if isinstance(data, dict) else None)


def _base(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc or parts.query or parts.fragment:
        raise InvalidError(f"server {url!r}: give http:// or https://, a host, and perhaps a port", field="servers")
    return url.rstrip("/")
