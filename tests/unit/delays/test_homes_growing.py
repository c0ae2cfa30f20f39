"""A home topic is repartitioned while delayed messages for it are due: they wait, and the order of each key holds."""

from __future__ import annotations

import logging
import time

import pytest

from kafka_pubsub import Message, PubSub
from kafka_pubsub.administration import manage_topics
from kafka_pubsub.config import Repartition
from kafka_pubsub.delays import homes
from kafka_pubsub.delays.homes import KNOWN_S, Homes
from kafka_pubsub.delays.service import DelayRouter
from kafka_pubsub.log.memory import MemoryBackend
from kafka_pubsub.log.partitioner import partition_of
from kafka_pubsub.model import TopicPartition
from kafka_pubsub.repartition.repartition import FENCE, Repartitioner
from tests.support import until


@pytest.fixture(autouse=True)
def _quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(homes, "KNOWN_S", 0.05)


def announce(backend: MemoryBackend, partitions: int | None) -> None:
    """Writes into the catalog that `orders` gets so many partitions; None: no change."""
    before = backend.catalog.topics()["orders"]
    change = None if partitions is None else Repartition(partitions=partitions, started=1.0)
    backend.catalog.put_topic(before.model_copy(update={"repartition": change}), before)


def stored(backend: MemoryBackend, name: str) -> list[bytes | None]:
    """The messages that readers of committed records find in a topic."""
    found: list[bytes | None] = []
    for number in range(backend.admin.topic(name).partitions):
        place = TopicPartition(name, number)
        start, end = backend.admin.log_range(place)
        fetch = backend.record_fetch()
        found += [each.value() for each in fetch.fetch(place, range(start, end), 10**9, 1.0).records]
        fetch.close()
    return found


def test_what_is_known_of_a_home_counts_for_less_than_publishers_are_waited_for() -> None:
    """A transaction that was decided by the old catalog takes 20 seconds at most."""
    assert homes._UNREAD_S + KNOWN_S + 20 < FENCE


def test_messages_with_a_key_wait_while_their_topic_is_repartitioned(
    ps: PubSub, backend: MemoryBackend, caplog: pytest.LogCaptureFixture
) -> None:
    topic, other = ps.create_topic("orders", partitions=2), ps.create_topic("other", partitions=2)
    ps._cluster.delay_topics.make(4, 1)
    topic.publish(b"1", ordering_key="k", delay=0.5).result(10)
    announce(backend, 5)
    with DelayRouter(ps) as router, caplog.at_level(logging.WARNING):
        topic.publish(b"before", delay=0.01).result(10)
        until(lambda: stored(backend, "orders") == [b"before"])
        other.publish(b"behind", delay=0.6).result(10)
        due = time.monotonic() + 0.8
        until(lambda: time.monotonic() > due, "both are due")
        assert not router.health().ok
        assert "topic 'orders' is being repartitioned from 2 to 5 partitions" in router.health().error
        assert "repartition_topic('orders', partitions=5)" in router.health().error
        assert (stored(backend, "orders"), stored(backend, "other")) == ([b"before"], [b"behind"])
        announce(backend, None)
        until(lambda: set(stored(backend, "orders")) == {b"before", b"1"})
        until(lambda: router.health().ok)
    said = [each for each in caplog.messages if "repartitioned" in each]
    assert len(said) == 2, "once when it begins and once when it ends"


def test_a_key_keeps_its_order_across_a_repartition(
    ps: PubSub, backend: MemoryBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing goes to a partition that its key has left, once its subscription may have finished that partition."""
    monkeypatch.setattr(homes, "KNOWN_S", 0.3)
    topic = ps.create_topic("orders", partitions=2)
    sub = ps.create_subscription("billing", "orders", message_ordering=True)
    change = Repartitioner(backend, manage_topics(backend, may_create=True), may_create=True, fence=1.2)
    came: list[Message] = []
    barrier: dict[int, int] = {}

    def handle(message: Message) -> None:
        came.append(message)
        message.ack()

    def note(_: object) -> None:
        now = backend.catalog.topics()["orders"].repartition
        barrier.update(now.barrier if now is not None else {})

    with DelayRouter(ps, tiers=4, partitions=2), sub.pull(handle):
        for n in range(120):
            topic.publish(b"%d" % n, ordering_key=f"k{n % 6}", delay=0.2 + n / 40)
        topic.flush(10)
        until(lambda: came)
        change.run("orders", 7, on_progress=note)
        until(lambda: len(came) == 120)
    for key in range(6):
        numbers = [int(each.data) for each in came if each.ordering_key == f"k{key}"]
        assert numbers == list(range(key, 120, 6))
    old = [each for each in came if each.partition != partition_of(each.key or b"", 7)]
    assert old, "some were delivered before"
    assert all(each.offset < barrier[each.partition] for each in old)
    assert len({each.partition for each in came}) > 2, "some were delivered afterwards"


def test_keys_stay_where_they_were_if_another_tool_has_added_partitions(
    ps: PubSub, backend: MemoryBackend
) -> None:
    ps.create_topic("orders", partitions=2)
    backend.admin.add_partitions("orders", 9)
    found = Homes(backend)
    assert {found.partition(found.find("orders"), b"%d" % n) for n in range(50)} == {0, 1}
