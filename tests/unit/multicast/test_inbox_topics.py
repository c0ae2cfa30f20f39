"""The inboxes of causal topics: made, made again and deleted beside the topic."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kafka_pubsub import PubSub
from kafka_pubsub.errors import FailedPrecondition, NotFound
from kafka_pubsub.log.memory import MemoryBackend
from kafka_pubsub.multicast.service import Sequencer
from tests.support import until
from tests.unit.multicast.test_multicast import PATIENCE, home


@pytest.fixture
def running(topics: PubSub) -> Iterator[Sequencer]:
    with Sequencer(topics) as sequencer:
        yield sequencer.wait_until_running(PATIENCE)


def test_a_topic_that_is_made_again_keeps_its_new_inbox(backend: MemoryBackend, topics: PubSub) -> None:
    with Sequencer(topics) as sequencer:
        sequencer.wait_until_running(PATIENCE)
        for _ in range(5):
            topics.publish_multi(["a", "b"], b"old").result(PATIENCE)
        # Deleted and made again by another client, so that the inbox begins at 0 again.
        record = backend.catalog.topics()["a"]
        for _ in range(2):
            topics.delete_topic("a")
        topics.create_topic("a", causal=True)
        assert backend.catalog.topics()["a"].topic_id != record.topic_id
        topics.publish_multi(["a", "b"], b"new").result(PATIENCE)
        until(lambda: home(backend, "a") == [b"new"])
    assert home(backend, "a") == [b"new"]


def test_a_handle_is_valid_until_its_topic_is_deleted(topics: PubSub, running: Sequencer) -> None:
    sub = topics.create_subscription("s", "a")
    topics.publish_multi(["a"], b"before", handles=["b", "c"]).result(PATIENCE)
    topics.delete_topic("b", notify=["a"])
    topics.publish_multi(["a"], b"after", handles=["c"]).result(PATIENCE)
    found = [sub.receive(1, PATIENCE)[0] for _ in range(3)]
    assert [(each.data, each.handles, each.event) for each in found] == [
        (b"before", ("b", "c"), None),
        (b"b", (), "topic_deleted"),
        (b"after", ("c",), None),
    ]


def test_what_comes_after_a_deletion_fails(
    backend: MemoryBackend, topics: PubSub, running: Sequencer
) -> None:
    with PubSub.in_memory(MemoryBackend(cluster=backend.cluster), services=False) as other:
        other.publish_multi(["a", "b"], b"1").result(PATIENCE)
        topics.delete_topic("b")
        # The other process doesn't know that the topic is gone; its inbox does.
        with pytest.raises(FailedPrecondition, match="b was deleted before"):
            other.publish_multi(["a", "b"], b"2").result(PATIENCE)
    with pytest.raises(NotFound):
        topics.publish_multi(["a", "b"], b"3")
    running.stop(PATIENCE)
    assert home(backend, "a") == [b"1"]


def test_a_deleted_topic_can_be_made_again(
    backend: MemoryBackend, topics: PubSub, running: Sequencer
) -> None:
    topics.delete_topic("b")
    topics.create_topic("b", causal=True)
    topics.publish_multi(["b", "a"], b"new").result(PATIENCE)
    until(lambda: home(backend, "b") == home(backend, "a") == [b"new"])


def test_what_a_half_deleted_topic_has_left_is_checked_too(backend: MemoryBackend, topics: PubSub) -> None:
    with Sequencer(topics):
        topics.delete_topic("a")
    backend.admin.create_topic("a", 1, None, {})  # as if Kafka had kept the topic
    with pytest.raises(FailedPrecondition, match=r"partitions: .* delete_topic\('a'\) removes it"):
        topics.create_topic("a", causal=True, partitions=2)
