"""Tests a program that schedules, without a bridge and without waiting."""

from datetime import timedelta

from delaybridge import Client, Message
from delaybridge.testing import FakeBridge


class Shop:
    def __init__(self, client: Client) -> None:
        self._client = client

    def place_order(self, number: int) -> None:
        message = Message("order.timeout", id=f"order-{number}", after=timedelta(minutes=30))
        self._client.schedule("orders", message)

    def pay(self, number: int) -> None:
        self._client.cancel("orders", f"order-{number}")


def test_unpaid_order_is_called_off() -> None:
    bridge = FakeBridge("orders")
    shop = Shop(bridge.client())  # or bridge.async_client()
    shop.place_order(41)
    shop.place_order(42)
    shop.pay(41)
    assert bridge.clock.advance(minutes=29) == []
    bridge.clock.advance(minutes=1)
    assert [m.id for m in bridge.published] == ["order-42"]
