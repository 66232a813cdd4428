"""Schedules in the transaction that places the order: python transaction.py postgres://…"""

import sys
from datetime import timedelta

import psycopg

from delaybridge import Message
from delaybridge.outbox import Outbox

box = Outbox("postgres")  # or "mysql"


def place(dsn: str, order: str) -> None:
    with psycopg.connect(dsn) as connection:
        connection.execute("INSERT INTO shop_orders (id) VALUES (%s)", [order])
        box.schedule(connection, "orders", Message("order.timeout", id=order, after=timedelta(minutes=30)))
    # Committed: the message will be published. An exception would have rolled back both.


if __name__ == "__main__":
    place(sys.argv[1], "order-42")
