"""Schedules a reminder, puts it off, and cancels it: python reminder.py http://127.0.0.1:8080"""

import sys
from datetime import timedelta

from delaybridge import Client, DuplicateError, Message, NotFoundError, TooLateError


def main(server: str) -> None:
    with Client(server) as client:
        reminder = Message("order.timeout", id="order-42/timeout", after=timedelta(minutes=30), body='{"order": 42}')
        try:
            result = client.schedule("orders", reminder)
            print(f"{result.id} is due in 30 minutes")
        except DuplicateError as e:
            print(f"it waits already, until {e.due_at}")
        client.reschedule("orders", "order-42/timeout", after=timedelta(hours=2))
        try:
            client.cancel("orders", "order-42/timeout")
            print("cancelled: it will never be published")
        except (NotFoundError, TooLateError) as e:
            print(f"it is out: {e}")


if __name__ == "__main__":
    main(sys.argv[1])
