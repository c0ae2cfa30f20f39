"""One suite of handlers, in memory and on a real broker: the same calls, values and dead letters."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from pydantic import BaseModel

from kafka_pubsub import App, DeadLetter, DeadLetterPolicy, Drop, Message, Retry, RetryPolicy
from kafka_pubsub.handlers.testing import AppTest
from kafka_pubsub.local.pytest_plugin import RunningKafka

#: Seconds; an upper bound for a slow machine, not an expectation.
PATIENCE = 120.0


class Order(BaseModel):
    user_id: str
    total: int


class Invoice(BaseModel):
    user_id: str
    paid: int


class Shop:
    """An app whose names no other test has, and what came of it."""

    def __init__(self, kafka: str | None, kind: str) -> None:
        self.name = f"h-{uuid.uuid4().hex[:8]}"
        self.app, self._kafka = App(), kafka
        self.orders = self.app.topic(f"{self.name}-orders", Order, key=lambda order: order.user_id)
        policy = DeadLetterPolicy(topic=f"{self.name}-dead", max_attempts=3)
        options: dict[str, Any] = {
            "topic": self.orders.name,
            "message_ordering": True,
            "retry": RetryPolicy(min_backoff=0.01, max_backoff=0.05),
            "dead_letter": policy,
            "dead_letter_on": (KeyError,),
            "to": f"{self.name}-invoices",
        }
        subscriber = self.app.subscriber(f"{self.name}-billing", **options)

        def charge(order: Order, message: Message) -> Invoice | None:
            match order.total:
                case 1 if message.delivery_attempt < 3:
                    raise Retry("busy", delay=0.02)
                case 2:
                    raise DeadLetter("not ours")
                case 3:
                    raise Drop("not wanted")
                case 4:
                    raise KeyError("unknown")
                case 5:
                    raise RuntimeError("down")
                case 6:
                    return None
                case _:
                    pass
            return Invoice(user_id=order.user_id, paid=order.total)

        if kind == "coroutine":

            async def charge_later(order: Order, message: Message) -> Invoice | None:
                return charge(order, message)

            subscriber(charge_later)
        else:
            subscriber(charge)

    def play(self, *values: object) -> dict[str, object]:
        """What came of the values."""
        with self.app.test(kafka=self._kafka) as t:
            for value in values:
                key = "ada" if isinstance(value, bytes) else None
                t.publish(self.orders.name, value, ordering_key=key)
            t.wait_idle(timeout=PATIENCE)
            return self.shown(t)

    def shown(self, t: AppTest) -> dict[str, object]:
        return {
            "calls": [(call.data, call.delivery_attempt) for call in t.calls(f"{self.name}-billing")],
            "values": [
                (value.json(Invoice).paid, value.ordering_key)
                for value in t.published(f"{self.name}-invoices")
            ],
            "dead": [
                (letter.data, letter.reason, letter.attempts) for letter in t.dead(f"{self.name}-billing")
            ],
        }


@pytest.fixture(params=["memory", "kafka"])
def address(request: pytest.FixtureRequest) -> str | None:
    """The broker's address; None: memory."""
    if request.param == "memory":
        return None
    kafka: RunningKafka = request.getfixturevalue("kafka")
    return kafka.bootstrap


def body(total: int) -> bytes:
    return b'{"user_id":"ada","total":%d}' % total


@pytest.mark.parametrize("kind", ["function", "coroutine"])
def test_calls_values_and_dead_letters_are_the_same_everywhere(address: str | None, kind: str) -> None:
    orders = [Order(user_id="ada", total=total) for total in range(8)]
    shown = Shop(address, kind).play(*orders, b'{"user_id":"ada","total":"many"}')
    assert shown["calls"] == [
        (body(0), 1),
        (body(1), 1),
        (body(1), 2),
        (body(1), 3),
        (body(2), 1),
        (body(3), 1),
        (body(4), 1),
        (body(5), 1),
        (body(5), 2),
        (body(5), 3),
        (body(6), 1),
        (body(7), 1),
    ]
    assert shown["values"] == [(0, "ada"), (1, "ada"), (7, "ada")]
    dead = shown["dead"]
    assert isinstance(dead, list)
    assert {(data, attempts) for data, _, attempts in dead} == {
        (body(2), 1),
        (body(4), 1),
        (body(5), 3),
        (b'{"user_id":"ada","total":"many"}', 1),
    }
    reasons = {data: reason for data, reason, _ in dead}
    assert reasons[body(5)] == "attempts used up"
    assert "total: Input should be a valid integer" in reasons[b'{"user_id":"ada","total":"many"}']
