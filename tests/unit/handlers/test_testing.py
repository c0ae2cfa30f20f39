"""`app.test()`: handlers in memory, on a clock that skips waits."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from pydantic import BaseModel

from kafka_pubsub import (
    App,
    DeadLetterPolicy,
    DeadlineExceeded,
    FailedPrecondition,
    Message,
    PubSub,
    RetryPolicy,
)


class Order(BaseModel):
    user_id: str
    total: int


class Invoice(BaseModel):
    paid: int


ADA = Order(user_id="ada", total=12)
DEAD = DeadLetterPolicy(topic="orders-dead", max_attempts=6)


def shop(**options: Any) -> App:
    """An app that charges orders, and fails those of 0 until their sixth attempt, and those below 0 for ever."""
    app = App()
    app.topic("orders", Order, key=lambda order: order.user_id)

    @app.subscriber("billing", topic="orders", to="invoices", **{"message_ordering": True, **options})
    def charge(order: Order, message: Message) -> Invoice:
        if order.total < 0 or (order.total == 0 and message.delivery_attempt < 6):
            raise RuntimeError("the bank is down")
        return Invoice(paid=order.total)

    return app


def test_a_test_publishes_waits_and_looks_at_what_happened() -> None:
    with shop().test() as t:
        t.publish("orders", ADA)
        t.wait_idle(timeout=120)
        (call,) = t.calls("billing")
        assert (call.json(Order), call.ordering_key) == (ADA, "ada")
        (invoice,) = t.published("invoices")
        assert (invoice.json(Invoice), invoice.ordering_key) == (Invoice(paid=12), "ada")
        assert t.dead("billing") == []


def test_backoffs_of_hours_and_delays_of_days_are_skipped() -> None:
    hours = RetryPolicy(min_backoff=600, max_backoff=86_400)
    started = time.monotonic()
    with shop(retry=hours, dead_letter=DEAD).test() as t:
        for number in range(10):
            t.publish("orders", Order(user_id=f"u{number}", total=0))
        t.publish("orders", ADA, delay=86_400 * 30)
        t.wait_idle(timeout=120)
        assert len(t.calls("billing")) == 61
        assert len(t.published("invoices")) == 11
        assert t.dead("billing") == []
    assert time.monotonic() - started < 120


def test_dead_letters_are_shown_with_their_reasons() -> None:
    with shop(dead_letter=DEAD).test() as t:
        t.publish("orders", Order(user_id="ada", total=-1))
        t.publish("orders", b'{"user_id":"bob"}', ordering_key="bob")
        t.wait_idle(timeout=120)
        reasons = {letter.ordering_key: letter.reason for letter in t.dead("billing")}
        assert reasons["ada"] == "attempts used up"
        assert "total: Field required" in reasons["bob"]


def test_what_never_ends_is_said_when_time_is_up() -> None:
    with shop().test() as t:
        t.publish("orders", Order(user_id="ada", total=-1))
        with pytest.raises(
            DeadlineExceeded, match=r"wait_idle: after 0.3 s .* 'billing' was called .* in attempt \d+"
        ):
            t.wait_idle(timeout=0.3)


def test_a_handler_that_publishes_through_the_app_uses_the_client_of_the_test() -> None:
    app = App("nowhere.invalid:1")
    orders = app.topic("orders", Order)
    seen = list[Order]()

    @app.subscriber("split", topic="baskets")
    def split(basket: list[int]) -> None:
        for total in basket:
            orders.publish(Order(user_id="ada", total=total)).result(10)

    @app.subscriber("billing", topic="orders")
    async def charge(order: Order) -> None:
        await asyncio.sleep(0)
        seen.append(order)

    with app.test() as t:
        t.publish("baskets", [1, 2, 3])
        t.wait_idle(timeout=120)
    assert sorted(order.total for order in seen) == [1, 2, 3]


def test_each_test_begins_empty_and_ends_clean() -> None:
    app = shop()
    for _ in range(2):
        with app.test() as t:
            t.publish("orders", ADA)
            t.wait_idle(timeout=120)
            assert len(t.calls("billing")) == 1
    assert app.life is None


def test_an_app_with_a_client_of_its_own_gets_it_back(pubsub: PubSub) -> None:
    app = App(pubsub=pubsub)

    @app.subscriber("billing", topic="orders", ensure="never")
    def charge(order: Order) -> None: ...

    with app.test() as t:
        assert t.pubsub is not pubsub
        assert app.pubsub is t.pubsub
        t.publish("orders", ADA)
        t.wait_idle(timeout=120)
    assert app.pubsub is pubsub
    assert pubsub.list_topics() == []


def test_a_start_in_the_past_is_no_matter_for_a_test() -> None:
    from datetime import UTC, datetime

    with shop(start=datetime(2026, 1, 1, tzinfo=UTC)).test() as t:
        t.publish("orders", ADA)
        t.wait_idle(timeout=120)
        assert len(t.calls("billing")) == 1


def test_an_app_that_runs_is_not_tested_at_the_same_time() -> None:
    app = shop()
    with app.test(), pytest.raises(FailedPrecondition, match="this app runs already"), app.test():
        pass
