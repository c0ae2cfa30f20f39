"""Which inboxes take part in a message, and that an inbox which was made again is another inbox."""

from __future__ import annotations

import pytest

from kafka_pubsub import FailedPrecondition, PubSub
from kafka_pubsub.log.memory import MemoryBackend
from kafka_pubsub.log.partitioner import partition_of
from kafka_pubsub.multicast import inbox_topics
from kafka_pubsub.multicast.service import Sequencer
from tests.multicasts import named, stage
from tests.support import until
from tests.unit.multicast.test_multicast import home
from tests.unit.multicast.test_task import PATIENCE


def test_an_inbox_that_was_made_again_is_named_and_others_go_on(
    backend: MemoryBackend, topics: PubSub, sequencer: Sequencer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with PubSub.in_memory(MemoryBackend(cluster=backend.cluster), services=False) as other:
        other.publish_multi(["a", "c"], b"0").result(PATIENCE)
        until(lambda: home(backend, "c") == [b"0"])
        backend.admin.delete_topic("c.inbox")
        backend.admin.create_topic("c.inbox", 1, None, {})
        with pytest.raises(FailedPrecondition, match="delete the topic and make it again"):
            topics.publish_multi(["b", "c"], b"refused")
        until(lambda: "'c.inbox' was deleted and made again" in sequencer.health().error)
        waiting = other.publish_multi(["a", "c"], b"1")
        until(lambda: len(home(backend, "c.inbox")) > 0)
        topics.publish_multi(["b"], b"2").result(PATIENCE)
        assert "made again" in topics.multicast.status("c")[0].problem
        # Its messages are refused by the sequencers once the catalog doesn't list the inbox.
        for seconds in ("_EXPELLED", "_PATIENCE"):
            monkeypatch.setattr(inbox_topics, seconds, 0.1)
        with pytest.raises(FailedPrecondition, match="notify: the deletion of topic 'c' has no place"):
            topics.delete_topic("c", notify=["a"])
        topics.delete_topic("c")
        with pytest.raises(FailedPrecondition, match="delivered to no topic, because c was deleted"):
            waiting.result(PATIENCE)
    topics.create_topic("c", causal=True)
    topics.publish_multi(["a", "c"], b"3").result(PATIENCE)
    until(lambda: home(backend, "c") == [b"3"] and home(backend, "a") == [b"0", b"3"])


def test_what_names_an_earlier_inbox_is_dead_lettered_and_refused_elsewhere(
    backend: MemoryBackend, topics: PubSub, sequencer: Sequencer
) -> None:
    before = named(backend, "a", "c")
    for _ in range(2):
        topics.delete_topic("c")
    topics.create_topic("c", causal=True)
    stage(backend, "a", "c", message="late", participants=before)
    topics.publish_multi(["a", "c"], b"new").result(PATIENCE)
    until(lambda: home(backend, "a") == home(backend, "c") == [b"new"])
    until(lambda: sequencer.metrics().get("refused") == 1 and sequencer.metrics().get("skipped") == 1)


@pytest.mark.parametrize("gone", ["a", "c"])
def test_the_first_destination_that_is_left_tells_the_publisher_that_another_is_gone(
    backend: MemoryBackend, topics: PubSub, sequencer: Sequencer, gone: str
) -> None:
    with PubSub.in_memory(MemoryBackend(cluster=backend.cluster), services=False) as late:
        late.publish_multi(["a", "c"], b"0").result(PATIENCE)
        for _ in range(2):
            topics.delete_topic(gone)
        topics.create_topic(gone, causal=True)
        with pytest.raises(FailedPrecondition, match=f"delivered to no topic, because {gone} was deleted"):
            late.publish_multi(["a", "c"], b"1").result(PATIENCE)


def test_a_partition_that_another_tool_adds_changes_nothing(
    backend: MemoryBackend, topics: PubSub, sequencer: Sequencer
) -> None:
    topics.publish_multi(["a", "b"], b"0").result(PATIENCE)
    backend.admin.add_partitions("a", 2)
    key = next(each for each in map(str, range(100)) if partition_of(each.encode(), 2) == 1)
    with PubSub.in_memory(MemoryBackend(cluster=backend.cluster), services=False) as other:
        other.publish_multi(["a", "b"], b"1", ordering_key=key).result(PATIENCE)
    until(lambda: home(backend, "a") == home(backend, "b") == [b"0", b"1"])
    assert sequencer.health().ok
