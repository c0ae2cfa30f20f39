"""What follows from a return and from each exception: acks, nacks, dead letters, values on another topic."""

from __future__ import annotations

import functools
import json
import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from kafka_pubsub import (
    App,
    DeadLetter,
    DeadLetterPolicy,
    Drop,
    FailedPrecondition,
    InvalidArgument,
    Message,
    RegistryUnavailable,
    Retry,
    RetryPolicy,
)
from kafka_pubsub.handlers.testing import AppTest
from kafka_pubsub.records.frames import frame
from kafka_pubsub.subscribe.workers.lease_runner import AWAY
from tests.registry_server import RegistryServer

DEAD = DeadLetterPolicy(topic="dead", max_attempts=3)


class Order(BaseModel):
    total: int


def app_of(handler: Callable[..., object], **options: Any) -> App:
    app = App()
    app.subscriber("billing", topic="orders", **{"dead_letter": DEAD, **options})(handler)
    return app


def played(app: App, *values: object, key: str | None = None) -> AppTest:
    """The finished test of an app that got these values."""
    with app.test() as t:
        for value in values:
            t.publish("orders", value, ordering_key=key)
        t.wait_idle(timeout=120)
        t.letters = t.dead("billing")  # type: ignore[attr-defined]
        t.backlog = t.pubsub.subscription("billing").state().backlog  # type: ignore[attr-defined]
        t.values = t.published("values") if "values" in {each.name for each in t.pubsub.list_topics()} else []  # type: ignore[attr-defined]
    return t


def attempts(t: AppTest) -> list[int]:
    return [message.delivery_attempt for message in t.calls("billing")]


def outcome(t: Any) -> tuple[list[int], int, int]:
    """The attempts that were made, the dead letters, and what isn't finished."""
    return attempts(t), len(t.letters), t.backlog


def test_a_return_acks() -> None:
    def handle(order: Order) -> None: ...

    assert outcome(played(app_of(handle), Order(total=1))) == ([1], 0, 0)


def test_an_exception_nacks_by_the_policy_until_attempts_are_used_up() -> None:
    def handle(order: Order) -> None:
        raise RuntimeError("down")

    assert outcome(played(app_of(handle), Order(total=1))) == ([1, 2, 3], 1, 0)


def test_retry_nacks_with_its_delay() -> None:
    def handle(order: Order, message: Message) -> None:
        if message.delivery_attempt == 1:
            raise Retry("busy", delay=timedelta(hours=3))

    app = app_of(handle)
    with app.test() as t:
        assert t.clock is not None
        t.publish("orders", Order(total=1))
        before = t.clock.now()
        t.wait_idle(timeout=120)
        assert attempts(t) == [1, 2]
        assert t.clock.now() - before >= 10_800


def test_drop_acks_and_says_why(caplog: pytest.LogCaptureFixture) -> None:
    def handle(order: Order) -> None:
        raise Drop("not wanted")

    with caplog.at_level(logging.INFO, "kafka_pubsub.app"):
        assert outcome(played(app_of(handle), Order(total=1))) == ([1], 0, 0)
    assert "subscriber 'billing' drops orders:" in caplog.text
    assert "not wanted" in caplog.text


def test_dead_letter_and_the_named_exceptions_are_dead_letters_at_once() -> None:
    class TooOld(Exception):
        pass

    class MuchTooOld(TooOld):
        pass

    def handle(order: Order) -> None:
        raise (DeadLetter("not ours") if order.total == 1 else MuchTooOld("since 1970"))

    t: Any = played(app_of(handle, dead_letter_on=(TooOld,)), Order(total=1), Order(total=2))
    assert (attempts(t), t.backlog) == ([1, 1], 0)
    assert {(letter.reason, letter.error_class) for letter in t.letters} == {
        ("rejected by the callback: not ours", "DeadLetter"),
        ("rejected by the callback: since 1970", "MuchTooOld"),
    }


def test_a_body_that_does_not_fit_is_a_dead_letter_without_a_call_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def handle(order: Order) -> None: ...

    app = app_of(handle)
    with caplog.at_level(logging.WARNING), app.test() as t:
        for number in range(25):
            t.publish("orders", {"total": f"x{number}"})
        t.wait_idle(timeout=120)
        assert t.calls("billing") == []
        assert len(t.dead("billing")) == 25
        assert app.rejected == {"billing": 25}
        assert all("total: Input should be a valid integer" in each.reason for each in t.dead("billing"))
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 2
    assert "This is said once" in said[0]
    assert "25 bodies didn't fit" in said[1]


def test_an_exception_of_pydantic_in_the_handler_is_no_wrong_body() -> None:
    def handle(order: Order) -> None:
        Order(total="many")  # type: ignore[arg-type]

    assert outcome(played(app_of(handle), Order(total=1))) == ([1, 2, 3], 1, 0)


def test_values_are_published_under_the_key_before_the_ack() -> None:
    acked = list[bool]()

    def handle(order: Order, message: Message) -> dict[str, int] | None:
        return {"paid": order.total} if order.total else None

    app = app_of(handle, to="values", message_ordering=True)

    @app.middleware
    def look(call: Callable[[], object], message: Message) -> object:
        result = call()
        acked.append(bool(message._state))
        return result

    t: Any = played(app, Order(total=5), Order(total=0), key="ada")
    assert [(value.json(), value.ordering_key) for value in t.values] == [({"paid": 5}, "ada")]
    assert acked == [False, False]


def test_a_value_that_cannot_be_published_is_a_nack_and_the_next_try_succeeds() -> None:
    def handle(order: Order, message: Message) -> object:
        return object() if message.delivery_attempt < 3 else b"done"

    t: Any = played(app_of(handle, to="values", message_ordering=True), Order(total=5), key="ada")
    assert outcome(t) == ([1, 2, 3], 0, 0)
    assert [(value.data, value.ordering_key) for value in t.values] == [(b"done", "ada")]


def test_a_handler_may_settle_the_message_itself() -> None:
    def handle(order: Order, message: Message) -> None:
        if order.total == 1:
            message.ack()
        elif message.delivery_attempt == 1:
            message.nack(delay=3600)

    t = played(app_of(handle), Order(total=1), Order(total=2))
    assert sorted(attempts(t)) == [1, 1, 2]


def test_a_handler_that_acks_and_then_raises_is_told(caplog: pytest.LogCaptureFixture) -> None:
    def handle(order: Order, message: Message) -> None:
        message.ack()
        raise RuntimeError("too late")

    with caplog.at_level(logging.ERROR):
        assert outcome(played(app_of(handle), Order(total=1))) == ([1], 0, 0)
    assert "it acked message orders:" in caplog.text
    assert "Leave the ack out" in caplog.text
    assert "test_calls.py:" in caplog.text


def test_middleware_is_around_each_call_from_the_first_to_the_last() -> None:
    steps = list[str]()

    def handle(order: Order) -> None:
        steps.append("handler")

    app = app_of(handle)
    for name in ("outer", "inner"):

        def around(call: Callable[[], object], message: Message, name: str = name) -> object:
            steps.append(f"{name} before {message.data!r}")
            result = call()
            steps.append(f"{name} after")
            return result

        app.middleware(around)
    played(app, b'{"total":1}')
    assert steps == [
        "outer before b'{\"total\":1}'",
        "inner before b'{\"total\":1}'",
        "handler",
        "inner after",
        "outer after",
    ]


def test_middleware_that_does_not_call_is_a_nack_that_names_it(caplog: pytest.LogCaptureFixture) -> None:
    def handle(order: Order) -> None: ...

    app = app_of(handle)

    @app.middleware
    def forgetful(call: Callable[[], object], message: Message) -> None: ...

    with caplog.at_level(logging.ERROR):
        t: Any = played(app, Order(total=1))
    assert len(t.letters) == 1
    assert "forgetful() in " in caplog.text
    assert "returned without calling call()" in caplog.text
    assert "return call(), or raise Drop" in caplog.text


def test_middleware_may_raise_outcomes_itself() -> None:
    def handle(order: Order) -> None: ...

    app = app_of(handle)

    @app.middleware
    def skip(call: Callable[[], object], message: Message) -> object:
        raise Drop("not now")

    assert outcome(played(app, Order(total=1))) == ([1], 0, 0)


def test_middleware_of_coroutines() -> None:
    steps = list[str]()

    async def handle(order: Order) -> dict[str, int]:
        steps.append("handler")
        return {"total": order.total}

    app = app_of(handle, to="values")

    @app.middleware
    def plain(call: Callable[[], object], message: Message) -> object:
        steps.append("plain")
        return call()

    @app.middleware
    async def waiting(call: Callable[[], Any], message: Message) -> object:
        steps.append("waiting")
        result = await call()
        steps.append("after")
        return result

    t: Any = played(app, Order(total=1))
    assert steps == ["plain", "waiting", "handler", "after"]
    assert [value.json() for value in t.values] == [{"total": 1}]


def test_a_coroutine_around_a_plain_handler_is_refused() -> None:
    def handle(order: Order) -> None: ...

    app = app_of(handle)

    @app.middleware
    async def waiting(call: Callable[[], Any], message: Message) -> object:
        return await call()

    with pytest.raises(
        FailedPrecondition, match=r"waiting\(\) in .* is a coroutine function, and subscriber 'billing'"
    ):
        app.check()


@pytest.mark.parametrize("kind", ["plain", "async"])
def test_a_batch_is_handled_as_one(kind: str) -> None:
    sizes = list[int]()

    def handle(orders: list[Order], messages: list[Message]) -> list[dict[str, int]]:
        sizes.append(len(orders))
        assert [message.json(Order) for message in messages] == orders
        return [{"paid": order.total} for order in orders]

    async def handle_async(orders: list[Order], messages: list[Message]) -> list[dict[str, int]]:
        return handle(orders, messages)

    app = app_of(handle_async if kind == "async" else handle, batch=50, to="values", message_ordering=True)
    t: Any = played(app, *(Order(total=n) for n in range(30)), key="ada")
    assert sum(sizes) == 30
    assert t.backlog == 0
    assert [value.json() for value in t.values] == [{"paid": n} for n in range(30)]


def test_wrong_bodies_in_a_batch_are_dead_letters_and_the_others_are_handled_in_order() -> None:
    seen = list[int]()

    def handle(orders: list[Order]) -> None:
        seen.extend(order.total for order in orders)

    values = [b"bad" if n in (3, 4, 9) else {"total": n} for n in range(12)]
    t: Any = played(app_of(handle, batch=50, message_ordering=True), *values, key="ada")
    assert seen == [0, 1, 2, 5, 6, 7, 8, 10, 11]
    assert (len(t.letters), t.backlog) == (3, 0)


@pytest.mark.parametrize(
    ("error", "letters"), [(Drop("no"), 0), (DeadLetter("no"), 5), (RuntimeError("no"), 5), (Retry(), 5)]
)
def test_an_outcome_of_a_batch_is_that_of_each_message(error: Exception, letters: int) -> None:
    def handle(orders: list[Order]) -> None:
        raise error

    t: Any = played(app_of(handle, batch=5), *(Order(total=n) for n in range(5)))
    assert (len(t.letters), t.backlog) == (letters, 0)


def test_a_batch_that_returns_another_number_of_values_is_a_nack(caplog: pytest.LogCaptureFixture) -> None:
    def handle(orders: list[Order]) -> list[int]:
        return [1] * (len(orders) + 1)

    with caplog.at_level(logging.ERROR):
        t: Any = played(app_of(handle, batch=5, to="values", message_ordering=True), Order(total=1), key="k")
    assert outcome(t) == ([1, 2, 3], 1, 0)
    assert (
        "returns a list with one value for each of its 1 messages (None publishes nothing), not 2"
        in caplog.text
    )


def test_a_coroutine_is_awaited_and_its_outcomes_hold() -> None:
    async def handle(order: Order, message: Message) -> None:
        if order.total == 1:
            raise DeadLetter("not ours")
        if message.delivery_attempt == 1:
            raise Retry(delay=60)

    t: Any = played(app_of(handle), Order(total=1), Order(total=2), b"nope")
    assert sorted(attempts(t)) == [1, 1, 2]
    assert (len(t.letters), t.backlog) == (2, 0)


def test_a_wrong_delay_is_a_nack_and_says_what_is_allowed(caplog: pytest.LogCaptureFixture) -> None:
    def handle(order: Order) -> None:
        raise Retry(delay=-5)

    with caplog.at_level(logging.ERROR):
        t: Any = played(app_of(handle), Order(total=1))
    assert len(t.letters) == 1
    assert "the delay must be from 0 to" in caplog.text


def test_a_plain_wrapper_of_a_coroutine_function_loses_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def charge(order: Order) -> None: ...

    @functools.wraps(charge)
    def wrapper(*values: Any) -> object:
        return charge(*values)

    with app_of(wrapper).test() as t:
        t.publish("orders", Order(total=1))
        t.wait_idle()
        assert len(t.calls("billing")) == 3
        assert len(t.dead("billing")) == 1
    assert "which would never run" in caplog.text


def test_a_handler_with_a_yield_is_refused() -> None:
    def charge(order: Order) -> Any:
        yield order

    with pytest.raises(InvalidArgument, match="has a yield"):
        app_of(charge)


def test_an_outage_of_the_registry_uses_no_attempts_up_quickly() -> None:
    """Whatever the policy says, the message comes again after half a minute."""
    app, at = App(), list[float]()

    @app.subscriber("billing", topic="orders", retry=RetryPolicy(min_backoff=0, max_backoff=0))
    def charge(message: Message) -> None:
        assert t.clock is not None
        at.append(t.clock.now())
        if message.delivery_attempt == 1:
            raise RegistryUnavailable("it doesn't answer")

    with app.test() as t:
        t.publish("orders", b"x")
        t.wait_idle(timeout=60)
    assert at[1] - at[0] >= AWAY


def test_a_batch_in_an_outage_of_the_registry_comes_again_after_half_a_minute() -> None:
    app, at = App(), list[float]()

    @app.subscriber("billing", topic="orders", batch=5, retry=RetryPolicy(min_backoff=0, max_backoff=0))
    def charge(messages: list[Message]) -> None:
        assert t.clock is not None
        at.append(t.clock.now())
        if messages[0].delivery_attempt == 1:
            raise RegistryUnavailable("it doesn't answer")

    with app.test() as t:
        t.publish("orders", b"x")
        t.wait_idle(timeout=60)
    assert at[1] - at[0] >= AWAY


def test_a_message_whose_schema_cannot_be_asked_for_holds_up_no_others_of_its_batch() -> None:
    handled = list[tuple[int, int]]()

    def charge(orders: list[Order], messages: list[Message]) -> None:
        attempts = [message.delivery_attempt for message in messages]
        handled.extend(zip([order.total for order in orders], attempts, strict=True))

    app = app_of(charge, batch=4, message_ordering=True)
    text = {"type": "record", "name": "Order", "fields": [{"name": "total", "type": "long"}]}
    with RegistryServer() as server:
        known = frame(server.add("orders-value", "AVRO", json.dumps(text)))
        unknown = frame(server.add("orders-value", "AVRO", json.dumps({**text, "doc": "the next version"})))
        with app.test(schemas={"url": server.address, "max.retries": 0}) as t:
            t.publish("orders", known + b"\x00", ordering_key="ada")
            t.wait_idle(timeout=60)
            with server.failing(503):
                for key, body in (
                    ("bob", unknown + b"\x02"),
                    ("eve", known + b"\x04"),
                    ("bob", known + b"\x06"),
                ):
                    t.publish("orders", body, ordering_key=key)
                t.wait_idle(timeout=60)
            assert len(t.dead("billing")) == 1
    assert [(total, attempt) for total, attempt in handled if total != 3] == [(0, 1), (2, 1)]
    assert 3 in dict(handled)
