"""Measures how fast one process schedules: python tests/bench.py http://127.0.0.1:8080 [TOKEN]

A token needs a rate beyond the default, as in `TOKEN producer rate=100000`: otherwise the bridge lets 500 calls a
second through.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

from delaybridge import AsyncClient, Batcher, Client, Message

MESSAGE = Message("bench", after=timedelta(hours=1), body=b"x" * 100)
SECONDS = 5.0


def rate(name: str, run: Callable[[float], int]) -> None:
    run(0.5)  # Connections are made.
    begin, cpu = time.perf_counter(), time.process_time()
    count = run(SECONDS)
    took, used = time.perf_counter() - begin, time.process_time() - cpu
    print(f"{name:<34} {count / took:>8.0f} messages/s, {used / count * 1e6:>6.0f} µs CPU each in this process")


def main(server: str, token: str | None) -> None:
    with Client(server, token=token) as client:

        def one(seconds: float) -> int:
            end, count = time.perf_counter() + seconds, 0
            while time.perf_counter() < end:
                client.schedule("orders", MESSAGE)
                count += 1
            return count

        def threads(seconds: float) -> int:
            with ThreadPoolExecutor(16) as pool:
                return sum(pool.map(one, [seconds] * 16))

        def batches(seconds: float) -> int:
            end, count = time.perf_counter() + seconds, 0
            while time.perf_counter() < end:
                results = client.schedule_batch("orders", [MESSAGE] * 500)
                count += len(results)
            return count

        def batcher(seconds: float) -> int:
            end, count = time.perf_counter() + seconds, 0
            with Batcher(client, "orders") as b:
                while time.perf_counter() < end:
                    b.add(MESSAGE)
                    count += 1
            return count

        rate("Client.schedule, 1 thread", one)
        rate("Client.schedule, 16 threads", threads)
        rate("Client.schedule_batch of 500", batches)
        rate("Batcher.add, 1 thread", batcher)

    async def tasks(seconds: float) -> int:
        async with AsyncClient(server, token=token) as client:
            end = time.perf_counter() + seconds

            async def one() -> int:
                count = 0
                while time.perf_counter() < end:
                    await client.schedule("orders", MESSAGE)
                    count += 1
                return count

            return sum(await asyncio.gather(*(one() for _ in range(16))))

    rate("AsyncClient.schedule, 16 tasks", lambda seconds: asyncio.run(tasks(seconds)))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None)
