"""Reminders in a database. Each is written with its message in one transaction: both are there, or none."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime

from psycopg.rows import class_row
from psycopg_pool import ConnectionPool

from delaybridge import Message
from delaybridge.outbox import Outbox

QUEUE = "orders"  # The one that `bridge dev` has.
TOPIC = "reminder.due"

SCHEMA = """
CREATE TABLE IF NOT EXISTS reminders (
    id text PRIMARY KEY, text text NOT NULL, due_at timestamptz(3) NOT NULL, cancelled boolean NOT NULL DEFAULT false
);
CREATE TABLE IF NOT EXISTS notifications (
    uid text PRIMARY KEY, reminder text NOT NULL REFERENCES reminders, at timestamptz NOT NULL DEFAULT now()
);
"""


@dataclass(frozen=True)
class Reminder:
    id: str
    text: str
    due_at: datetime
    cancelled: bool = False
    notifications: int = 0
    """How often somebody was reminded."""


class Reminders:
    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool
        self._outbox = Outbox("postgres")

    def create(self, text: str, due_at: datetime) -> Reminder:
        new = Reminder(str(uuid.uuid4()), text, due_at)
        with self._pool.connection() as tx:  # Its end commits; an exception rolls back.
            tx.execute("INSERT INTO reminders (id, text, due_at) VALUES (%s, %s, %s)", [new.id, text, due_at])
            self._outbox.schedule(tx, QUEUE, Message(TOPIC, at=due_at, id=new.id, body=new.id))
        return new

    def move(self, id: str, due_at: datetime) -> bool:
        """Gives a reminder another time, also one that has come already. Returns false if there is none.

        The message is replaced and not rescheduled: if it is being published right now, the new one comes all the same,
        and remind leaves the old one out.
        """
        with self._pool.connection() as tx:
            moved = tx.execute("UPDATE reminders SET due_at = %s WHERE id = %s AND NOT cancelled", [due_at, id])
            if moved.rowcount == 0:
                return False
            self._outbox.schedule(tx, QUEUE, Message(TOPIC, at=due_at, id=id, body=id, conflict="replace"))
        return True

    def cancel(self, id: str) -> bool:
        """Cancels a reminder. Returns false if there is none."""
        with self._pool.connection() as tx:
            cancelled = tx.execute("UPDATE reminders SET cancelled = true WHERE id = %s AND NOT cancelled", [id])
            if cancelled.rowcount == 0:
                return False
            self._outbox.cancel(tx, QUEUE, id)
        return True

    def remind(self, uid: str, id: str, due_at: datetime) -> bool:
        """Notes that somebody is reminded, once for each uid, since a message may come twice. The reminder itself
        decides, since a move or a cancel may have come too late for its message. Returns whether it was noted."""
        with self._pool.connection() as tx:
            noted = tx.execute(
                "INSERT INTO notifications (uid, reminder)"
                " SELECT %s, id FROM reminders WHERE id = %s AND NOT cancelled AND due_at <= %s FOR UPDATE"
                " ON CONFLICT DO NOTHING",
                [uid, id, due_at],
            )
            return noted.rowcount == 1

    def get(self, id: str) -> Reminder | None:
        with self._pool.connection() as tx, tx.cursor(row_factory=class_row(Reminder)) as cursor:
            cursor.execute(
                "SELECT r.*, (SELECT count(*) FROM notifications WHERE reminder = r.id) AS notifications"
                " FROM reminders r WHERE id = %s",
                [id],
            )
            return cursor.fetchone()
