"""Each rule of handlers is needed: without it a scene fails that passes with it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kafka_pubsub import App, DeadLetterPolicy, Drop, Message, Retry
from tests.unit.handlers.calls_mutations import MUTATIONS, Patch

DEAD = DeadLetterPolicy(topic="dead", max_attempts=3)


def app_of(handler: Callable[..., object], to: str | None = None) -> App:
    app = App()
    app.subscriber("billing", topic="orders", dead_letter=DEAD, message_ordering=True, ack_deadline=5, to=to)(
        handler
    )
    return app


def wrong_body() -> None:
    """It is a dead letter after one attempt, and the handler isn't called."""

    def handle(order: dict[str, int]) -> None: ...

    with app_of(handle).test() as t:
        t.publish("orders", b"nope", ordering_key="ada")
        t.wait_idle(timeout=120)
        assert t.calls("billing") == []
        assert [letter.attempts for letter in t.dead("billing")] == [1]


def failing_value() -> None:
    """A value that can't be published at first is published in the end, under the key."""

    def handle(order: dict[str, int], message: Message) -> object:
        return object() if message.delivery_attempt == 1 else b"done"

    with app_of(handle, to="values").test() as t:
        t.publish("orders", {"a": 1}, ordering_key="ada")
        t.wait_idle(timeout=120)
        assert [(value.data, value.ordering_key) for value in t.published("values")] == [(b"done", "ada")]


def drop() -> None:
    """A dropped message comes once, and is no dead letter."""

    def handle(order: dict[str, int]) -> None:
        raise Drop("not wanted")

    with app_of(handle).test() as t:
        t.publish("orders", {"a": 1}, ordering_key="ada")
        t.wait_idle(timeout=120)
        assert len(t.calls("billing")) == 1
        assert t.dead("billing") == []


def retry() -> None:
    """It comes again, and not before its delay has passed."""

    def handle(order: dict[str, int], message: Message) -> None:
        at.append(t.clock.now() if t.clock else 0.0)
        if message.delivery_attempt == 1:
            raise Retry(delay=600)

    at = list[float]()
    with app_of(handle).test() as t:
        t.publish("orders", {"a": 1}, ordering_key="ada")
        t.wait_idle(timeout=120)
        assert at[1] - at[0] >= 600


SCENES: dict[str, Callable[[], None]] = {
    "wrong_body": wrong_body,
    "failing_value": failing_value,
    "drop": drop,
    "retry": retry,
}


@pytest.mark.parametrize("scene", list(SCENES.values()), ids=list(SCENES))
def test_a_scene_passes_with_all_rules(scene: Callable[[], None]) -> None:
    scene()


@pytest.mark.parametrize("mutation", list(MUTATIONS), ids=lambda each: each.__name__)
def test_a_rule_that_is_taken_out_is_noticed(
    mutation: Callable[[Patch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutation(monkeypatch)
    with pytest.raises(AssertionError):
        SCENES[MUTATIONS[mutation]]()
