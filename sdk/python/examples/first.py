"""Schedules a message that is due in one second, and receives it: first.py BRIDGE NATS, as bridge dev prints them."""

import asyncio
import sys
from datetime import timedelta

import nats

from delaybridge import AsyncClient, Message


async def main(server: str, broker: str) -> None:
    connection = await nats.connect(broker)
    arrivals = await connection.subscribe("order.timeout")
    async with AsyncClient(server) as client:
        result = await client.schedule("orders", Message("order.timeout", after=timedelta(seconds=1), body="order 42"))
    print("scheduled", result.id, flush=True)
    arrival = await arrivals.next_msg(timeout=30)
    print("received", arrival.data.decode())
    await connection.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
