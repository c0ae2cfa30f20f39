"""A message has one id, that of its publishing: wherever it goes, and wherever it is shown or asked for."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kafka_pubsub import DeadLetterPolicy, DelayRouter, PubSub, Subscription, UnknownAck
from kafka_pubsub.model import AckId
from tests.unit.dying import PATIENCE, QUICK, Handler, deliver, until

PARK = DeadLetterPolicy(topic="dead", max_attempts=1, on_exhausted="park")
STORE_DEAD_LETTER = DeadLetterPolicy(topic="dead", max_attempts=1)


def made(ps: PubSub, policy: DeadLetterPolicy) -> Subscription:
    ps.create_topic("orders", partitions=2)
    ps.create_topic("dead", partitions=1)
    return ps.create_subscription("billing", "orders", message_ordering=True, retry=QUICK, dead_letter=policy)


def delayed(ps: PubSub) -> str:
    """Publishes a message that a router relays; returns its id, which isn't the place where it lies at home."""
    message_id = ps.topic("orders").publish(b"x", ordering_key="k", delay=0.001).result(PATIENCE)
    assert message_id.startswith("_kafka_pubsub.delay.in:")
    (waiting,) = ps.delays.waiting(message_id)
    assert (waiting.message_id, waiting.id) == (message_id, message_id)
    return message_id


def test_a_parked_message_is_shown_logged_and_released_by_the_id_that_publish_gave(
    ps: PubSub, caplog: pytest.LogCaptureFixture
) -> None:
    sub = made(ps, PARK)
    message_id = delayed(ps)
    with DelayRouter(ps), sub.pull(Handler(lambda message: True)):
        until(lambda: [each.state for each in list(sub.keys())] == ["parked"])
    assert f"attempts used up: parked until released ({message_id})" in caplog.text
    (key,) = list(sub.keys())
    assert key.message_id == message_id
    assert [each.message_id for each in sub.peek()] == [message_id]
    assert sub.release(ids=["orders:1:9"], dry_run=True).count == 0
    for id in (message_id, f"{key.partition}:{key.offset}", f"orders:{key.partition}:{key.offset}"):
        assert sub.release(ids=[id], dry_run=True).count == 1
    sub.release(ids=[message_id])
    assert [each.message_id for each in deliver(sub, 1)] == [message_id]


@pytest.mark.parametrize("relayed", [False, True])
def test_a_dead_letter_keeps_the_id_where_it_lies_and_when_it_comes_back(
    ps: PubSub, caplog: pytest.LogCaptureFixture, relayed: bool
) -> None:
    sub = made(ps, STORE_DEAD_LETTER)
    failed = ps.create_subscription("failed", "dead")
    published = ps.topic("orders").publish
    message_id = delayed(ps) if relayed else published(b"x", ordering_key="k").result(PATIENCE)
    with DelayRouter(ps), sub.pull(Handler(lambda message: True)):
        until(lambda: list(sub.dead_letters()))
    assert f"dead-lettered ({message_id}: attempts used up)" in caplog.text
    (dead,) = sub.dead_letters(ids=[message_id])
    assert dead.message_id == message_id
    assert dead.attributes == {}
    assert [each.id for each in sub.dead_letters(ids=[dead.id])] == [dead.id]
    assert [each.message_id for each in deliver(failed, 1)] == [message_id]
    assert sub.replay_dead_letters(ids=[message_id]).count == 1
    (again,) = deliver(sub, 1)
    assert again.message_id == message_id
    assert ("ps-id" in dict(again.headers)) == relayed


@pytest.mark.parametrize(
    "change", [lambda text: text + text, lambda text: text[1:], lambda text: text[:-3] + "AAA"]
)
def test_a_changed_ack_id_is_unknown(change: Callable[[str], str]) -> None:
    text = str(AckId(1, 0, 2, 3, 4, 5))
    assert AckId.parse(text) == AckId(1, 0, 2, 3, 4, 5)
    with pytest.raises(UnknownAck):
        AckId.parse(change(text))
