"""Schedules many reminders in the background: python batches.py http://127.0.0.1:8080"""

import sys
from datetime import timedelta

from delaybridge import Batcher, Client, DelaybridgeError, Message


def main(server: str) -> None:
    messages = [Message("reminder", id=f"user-{n}", after=timedelta(days=1)) for n in range(5000)]
    with Client(server) as client, Batcher(client, "orders") as batcher:
        futures = [batcher.add(message) for message in messages]
    for message, future in zip(messages, futures, strict=True):
        try:
            future.result()  # a ScheduleResult; or the message's error is raised
        except DelaybridgeError as e:
            print(f"{message.id} was not scheduled: {e}")


if __name__ == "__main__":
    main(sys.argv[1])
