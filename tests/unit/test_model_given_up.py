"""`message.dead_letter(reason)`: a callback gives a message up, and no attempt is made again."""

from __future__ import annotations

import pytest

from kafka_pubsub import DeadLetterMessage, DeadLetterPolicy, Message, PubSub, Subscription
from kafka_pubsub.testing import VirtualClock

DEAD = DeadLetterPolicy(topic="dead", max_attempts=5)
PARK = DeadLetterPolicy(topic="dead", on_exhausted="park")


class Giving:
    """A callback that gives up the bodies that begin with `bad`."""

    def __init__(self) -> None:
        self.made: list[tuple[bytes, int]] = []

    def __call__(self, message: Message) -> None:
        self.made.append((message.data, message.delivery_attempt))
        if message.data.startswith(b"bad"):
            message.dead_letter("total: must be a number")
        else:
            message.ack()


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


def letters_of(sub: Subscription) -> list[DeadLetterMessage]:
    return list(sub.dead_letters())


def make(ps: PubSub, dead_letter: DeadLetterPolicy | None, *, ordering: bool = False) -> Subscription:
    ps.create_topic("orders", partitions=1)
    ps.create_topic("dead", partitions=1)
    return ps.create_subscription(
        "billing", "orders", dead_letter=dead_letter, message_ordering=ordering or None
    )


@pytest.mark.parametrize("ordering", [False, True])
def test_a_message_that_is_given_up_is_a_dead_letter_at_once(clock: VirtualClock, ordering: bool) -> None:
    with PubSub.in_memory(clock=clock) as ps:
        sub, giving = make(ps, DEAD, ordering=ordering), Giving()
        with sub.pull(giving):
            for data in (b"bad", b"good"):
                ps.topic("orders").publish(data, ordering_key="k")
            clock.advance(5)
        (letter,) = letters_of(sub)
        assert giving.made == [(b"bad", 1), (b"good", 1)]
        assert (letter.data, letter.attempts) == (b"bad", 1)
        assert letter.reason == "rejected by the callback: total: must be a number"
        assert (letter.error_class, letter.error) == ("Rejected", "total: must be a number")


def test_an_error_that_is_being_handled_gives_its_class(clock: VirtualClock) -> None:
    def handle(message: Message) -> None:
        try:
            raise ValueError("no")
        except ValueError:
            message.dead_letter("not ours")

    with PubSub.in_memory(clock=clock) as ps:
        sub = make(ps, DEAD)
        with sub.pull(handle):
            ps.topic("orders").publish(b"x")
            clock.advance(5)
        (letter,) = letters_of(sub)
        assert (letter.error_class, letter.error) == ("ValueError", "not ours")


@pytest.mark.parametrize("policy", [None, PARK])
def test_without_dead_letters_it_is_parked_until_it_is_released(
    clock: VirtualClock, policy: DeadLetterPolicy | None
) -> None:
    with PubSub.in_memory(clock=clock) as ps:
        sub, giving = make(ps, policy, ordering=True), Giving()
        with sub.pull(giving):
            for data in (b"bad", b"good"):
                ps.topic("orders").publish(data, ordering_key="k")
            clock.advance(3600)
            assert giving.made == [(b"bad", 1)]
            (key,) = sub.keys()
            assert (key.state, key.reason) == ("parked", "its callback gave it up")
            sub.release()
            clock.advance(5)
            assert giving.made == [(b"bad", 1), (b"bad", 1)]


def test_many_are_no_outage(clock: VirtualClock) -> None:
    with PubSub.in_memory(clock=clock) as ps:
        sub, giving = make(ps, DEAD), Giving()
        with sub.pull(giving):
            ps.topic("orders").publish_many([b"bad%d" % at for at in range(60)])
            clock.advance(5)
        assert len(giving.made) == 60
        assert len(letters_of(sub)) == 60


def test_in_a_batch_the_earlier_ones_are_acked(clock: VirtualClock) -> None:
    seen: list[bytes] = []

    def handle(messages: list[Message]) -> None:
        for message in messages:
            seen.append(message.data)
            if message.data == b"bad":
                message.dead_letter("no")
            else:
                message.ack()

    with PubSub.in_memory(clock=clock) as ps:
        sub = make(ps, DEAD, ordering=True)
        with sub.pull_batch(handle, max_messages=10):
            ps.topic("orders").publish_many(
                [{"data": data, "ordering_key": "k"} for data in (b"one", b"bad", b"two")]
            )
            clock.advance(5)
        (letter,) = letters_of(sub)
        assert letter.data == b"bad"
        assert seen[-1] == b"two"
