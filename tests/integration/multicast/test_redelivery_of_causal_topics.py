"""A subscription of a causal topic: retries and dead letters keep each key's order, as on any topic."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import pytest

from kafka_pubsub import Message, PubSub
from kafka_pubsub.config import DeadLetterPolicy, RetryPolicy
from kafka_pubsub.local.broker import LocalKafka
from kafka_pubsub.multicast.service import Sequencer
from tests.support import until

#: Seconds for an answer on a busy machine.
PATIENCE = 60.0
NAMES, KEYS, COUNT = ["orders", "stock"], 7, 300


@pytest.fixture
def ps() -> Iterator[PubSub]:
    with LocalKafka() as broker, PubSub(broker.bootstrap) as opened:
        for name in NAMES:
            opened.create_topic(name, causal=True)
        yield opened


def test_retries_and_dead_letters_keep_the_order_of_their_keys(ps: PubSub) -> None:
    """Every 7th message is nacked once, and every 50th until it is a dead letter."""
    ps.create_topic("dead")
    letters = ps.create_subscription("letters", "dead")
    policy = DeadLetterPolicy(topic="dead", max_attempts=5)
    retry = RetryPolicy(min_backoff=0.05, max_backoff=0.2)
    subs = [
        ps.create_subscription(name, name, message_ordering=True, retry=retry, dead_letter=policy)
        for name in NAMES
    ]
    begun: dict[str, defaultdict[str, list[int]]] = {name: defaultdict(list) for name in NAMES}
    dead: list[int] = []
    acked: dict[str, list[int]] = {name: [] for name in NAMES}

    def give_up(message: Message) -> None:
        dead.append(int(message.data))
        message.ack()

    def receive(name: str, message: Message) -> None:
        number = int(message.data)
        begun[name][message.ordering_key or ""].append(number)
        if number % 50 == 0 or (number % 7 == 0 and message.delivery_attempt == 1):
            message.nack()
        else:
            message.ack()
            acked[name].append(number)

    with Sequencer(ps):
        futures = [
            ps.publish_multi(NAMES, b"%d" % number, ordering_key=f"k{number % KEYS}")
            for number in range(COUNT)
        ]
        for future in futures:
            future.result(PATIENCE)
        with (
            subs[0].pull(lambda message: receive("orders", message)),
            subs[1].pull(lambda message: receive("stock", message)),
            letters.pull(give_up),
        ):
            wanted = {number for number in range(COUNT) if number % 50}
            until(lambda: all(set(acked[name]) == wanted for name in NAMES))
            until(lambda: len(dead) == 2 * COUNT // 50)
    assert sorted(dead) == sorted([*range(0, COUNT, 50)] * 2), "each subscription gives each of them up once"
    for name in NAMES:
        assert sorted(acked[name]) == sorted(wanted), "each is acked once"
        for key, numbers in begun[name].items():
            assert numbers == sorted(numbers), f"{name} {key}: an earlier message of the key was passed"
            used_up = [number for number in numbers if number % 50 == 0]
            assert all(used_up.count(number) == 5 for number in used_up)
