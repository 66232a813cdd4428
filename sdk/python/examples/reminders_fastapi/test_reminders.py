"""The application with a real database, bridge and broker; only the bridge's clock is moved."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone

import httpx
import pytest
import uvicorn
from fastapi import FastAPI

from delaybridge import Client, NotFoundError

from .app import create_app
from .reminders import QUEUE, Reminders
from .surroundings import Surroundings, surroundings


@pytest.fixture(scope="module")
def around() -> Iterator[Surroundings]:
    for name in ("DELAYBRIDGE_TEST_POSTGRES_URL", "DELAYBRIDGE_TEST_BRIDGE"):
        if name not in os.environ:
            text = f"{name} is not set: make sdk-python sets it"
            pytest.fail(text) if os.environ.get("CI") == "true" else pytest.skip(text)
    with surroundings() as started:
        yield started


@pytest.fixture(scope="module")
def app(around: Surroundings) -> Iterator[FastAPI]:
    """The application, at app.state.port."""
    served = create_app(around.dsn, around.nats)
    server = uvicorn.Server(uvicorn.Config(served, port=0, log_level="warning"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        until(lambda: server.started or not thread.is_alive())
        served.state.port = server.servers[0].sockets[0].getsockname()[1]
        yield served
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture
def http(app: FastAPI) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"http://127.0.0.1:{app.state.port}", trust_env=False, timeout=60) as client:
        yield client


def until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + 120
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.05)


def after(**delay: float) -> str:
    return (datetime.now(timezone.utc) + timedelta(**delay)).isoformat()


def create(http: httpx.Client, due_at: str) -> str:
    made = http.post("/reminders", json={"text": "call Ann", "due_at": due_at})
    assert made.status_code == 201, made.text
    id: str = made.json()["id"]
    return id


def notifications(http: httpx.Client, id: str) -> int:
    count: int = http.get(f"/reminders/{id}").json()["notifications"]
    return count


def test_a_reminder_comes_unless_it_is_moved_or_cancelled(http: httpx.Client, around: Surroundings) -> None:
    moved, cancelled, kept = (create(http, after(minutes=m)) for m in (10, 20, 30))
    assert http.put(f"/reminders/{moved}/due", json={"due_at": after(minutes=50)}).status_code == 204
    assert http.delete(f"/reminders/{cancelled}").status_code == 204
    with Client(around.bridge) as client:

        def waits(id: str, least: timedelta = timedelta()) -> bool:
            try:
                found = client.get(QUEUE, id)
            except NotFoundError:
                return False
            return found.due_at is not None and found.due_at > datetime.now(timezone.utc) + least

        # The bridge has taken what was written, and done what was asked.
        until(lambda: waits(kept) and waits(moved, timedelta(minutes=40)) and not waits(cancelled))
    around.advance(timedelta(minutes=31))
    until(lambda: notifications(http, kept) == 1)
    assert [notifications(http, id) for id in (moved, cancelled)] == [0, 0], "they would have come before"
    around.advance(timedelta(minutes=30))
    until(lambda: notifications(http, moved) == 1)
    assert notifications(http, kept) == 1

    # It is put off once more after it has come.
    assert http.put(f"/reminders/{kept}/due", json={"due_at": after(hours=2)}).status_code == 204
    around.advance(timedelta(hours=2))
    until(lambda: notifications(http, kept) == 2)


def test_the_reminder_decides(app: FastAPI, http: httpx.Client) -> None:
    reminders: Reminders = app.state.reminders
    # So far off that the bridge, whose clock other tests move by hours, does not publish it beside us.
    soon = datetime.now(timezone.utc).replace(microsecond=0) + timedelta(days=30)
    made = reminders.create("call Ann", soon)
    assert reminders.remind("uid-1", made.id, soon)
    assert not reminders.remind("uid-1", made.id, soon), "a copy"
    reminders.move(made.id, soon + timedelta(hours=1))
    assert not reminders.remind("uid-2", made.id, soon), "the move came too late"
    assert reminders.remind("uid-3", made.id, soon + timedelta(hours=1))
    reminders.cancel(made.id)
    assert not reminders.remind("uid-4", made.id, soon + timedelta(hours=1)), "the cancel came too late"
    assert notifications(http, made.id) == 2


def test_what_is_refused_leaves_nothing(http: httpx.Client) -> None:
    made = create(http, after(hours=1))
    refused = http.put(f"/reminders/{made}/due", json={"due_at": "1969-12-31T00:00:00Z"})
    assert refused.status_code == 422
    assert "from 1970 to 9999" in refused.json()["detail"]
    assert http.get(f"/reminders/{made}").json()["due_at"] > after(), "the transaction was rolled back"
    assert http.put("/reminders/none/due", json={"due_at": after(hours=1)}).status_code == 404
    assert http.delete("/reminders/none").status_code == 404
    assert http.get("/reminders/none").status_code == 404
