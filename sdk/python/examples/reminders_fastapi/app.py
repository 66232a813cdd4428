"""The API of the reminders, and the consumer of those that are due."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Annotated

import nats
from fastapi import APIRouter, Depends, FastAPI, HTTPException, Request
from fastapi.responses import JSONResponse
from nats.aio.msg import Msg
from psycopg_pool import ConnectionPool
from pydantic import AwareDatetime, BaseModel, Field

from delaybridge import InvalidError

from .reminders import SCHEMA, TOPIC, Reminder, Reminders

router = APIRouter(prefix="/reminders")


def _reminders(request: Request) -> Reminders:
    found: Reminders = request.app.state.reminders
    return found


Own = Annotated[Reminders, Depends(_reminders)]


class New(BaseModel):
    text: str = Field(min_length=1, max_length=1000)
    due_at: AwareDatetime


class Due(BaseModel):
    due_at: AwareDatetime


# Functions without async run in threads: the outbox takes a connection that blocks.
@router.post("", status_code=201)
def create(new: New, reminders: Own) -> Reminder:
    return reminders.create(new.text, new.due_at)


@router.put("/{id}/due", status_code=204)
def move(id: str, due: Due, reminders: Own) -> None:
    if not reminders.move(id, due.due_at):
        raise HTTPException(404)


@router.delete("/{id}", status_code=204)
def cancel(id: str, reminders: Own) -> None:
    if not reminders.cancel(id):
        raise HTTPException(404)


@router.get("/{id}")
def show(id: str, reminders: Own) -> Reminder:
    if (found := reminders.get(id)) is None:
        raise HTTPException(404)
    return found


def _refuse(_: Request, error: Exception) -> JSONResponse:
    return JSONResponse({"detail": str(error)}, 422)


@asynccontextmanager
async def consuming(url: str, reminders: Reminders) -> AsyncIterator[None]:
    """Consumes what is due until the block ends. Processes that do so share the messages."""
    client = await nats.connect(url, max_reconnect_attempts=-1)

    async def consume(message: Msg) -> None:
        headers = message.headers or {}
        due_at = datetime.fromisoformat(headers["delay-due-at"].replace("Z", "+00:00"))
        await asyncio.to_thread(reminders.remind, headers["delay-uid"], message.data.decode(), due_at)
        await message.ack()  # Without it, after an error above, the message comes again.

    try:
        jetstream = client.jetstream()
        await jetstream.add_stream(name="reminders", subjects=[TOPIC])
        await jetstream.subscribe(TOPIC, queue="reminders", cb=consume, manual_ack=True)
        yield
    finally:
        await client.drain()


def create_app(dsn: str, nats_url: str) -> FastAPI:
    """The application. It needs PostgreSQL with the outbox' table, NATS, and a bridge between them."""

    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        with ConnectionPool(dsn, open=False) as pool:
            with pool.connection() as tx:
                tx.execute(SCHEMA)
            app.state.reminders = Reminders(pool)
            async with consuming(nats_url, app.state.reminders):
                yield

    app = FastAPI(lifespan=life)
    app.include_router(router)
    app.add_exception_handler(InvalidError, _refuse)
    return app
