"""Schedules as fast as one process can, for `figures load`: load.py BRIDGE, with a token in TOKEN.

Each line of the input is a way and for how many seconds: `one 5`, `many 5` (64 callers), `batcher 5`, or one of these
with `async-` before it. The line of the answer is how many messages were scheduled.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

from delaybridge import AsyncBatcher, AsyncClient, Batcher, Client, Message

MESSAGE = Message("load", after=timedelta(days=1), body=b"x" * 256)
CALLERS = 64


def threads(client: Client, way: str, seconds: float) -> int:
    end = time.perf_counter() + seconds

    def one(_: int = 0) -> int:
        count = 0
        while time.perf_counter() < end:
            client.schedule("orders", MESSAGE)
            count += 1
        return count

    if way == "one":
        return one()
    if way == "many":
        with ThreadPoolExecutor(CALLERS) as pool:
            return sum(pool.map(one, range(CALLERS)))
    futures = []
    with Batcher(client, "orders") as batcher:
        while time.perf_counter() < end:
            futures.append(batcher.add(MESSAGE))
    for future in futures:
        future.result()
    return len(futures)


async def tasks(client: AsyncClient, way: str, seconds: float) -> int:
    end = time.perf_counter() + seconds

    async def one() -> int:
        count = 0
        while time.perf_counter() < end:
            await client.schedule("orders", MESSAGE)
            count += 1
        return count

    if way == "one":
        return await one()
    if way == "many":
        return sum(await asyncio.gather(*(one() for _ in range(CALLERS))))
    futures = []
    async with AsyncBatcher(client, "orders") as batcher:
        while time.perf_counter() < end:
            futures.append(await batcher.add(MESSAGE))
    return len(await asyncio.gather(*futures))


async def by_tasks(server: str, token: str, way: str, seconds: float) -> int:
    async with AsyncClient(server, token=token) as client:
        return await tasks(client, way, seconds)


def main(server: str, token: str) -> None:
    with Client(server, token=token) as client:
        for order in sys.stdin:
            way, seconds = order.split()
            if way.startswith("async-"):
                count = asyncio.run(by_tasks(server, token, way.removeprefix("async-"), float(seconds)))
            else:
                count = threads(client, way, float(seconds))
            print(count, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], os.environ["TOKEN"])
