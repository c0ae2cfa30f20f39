"""Sequencers that begin: with much to read, with a topic that was deleted meanwhile, with an inbox that is gone."""

from __future__ import annotations

import pytest

from kafka_pubsub import FailedPrecondition, PubSub
from kafka_pubsub.log.memory import MemoryBackend
from kafka_pubsub.model import Committed, TopicPartition
from kafka_pubsub.multicast import task as sequencer_task
from kafka_pubsub.multicast.batch import BatchMessage
from kafka_pubsub.multicast.future import SentFuture
from kafka_pubsub.multicast.layout import DEAD
from kafka_pubsub.multicast.progress import SequencerProgress
from kafka_pubsub.multicast.role import SequencerRole
from kafka_pubsub.multicast.routes import Target, way_of_deletion
from kafka_pubsub.multicast.sequencer import START, Checkpoint
from kafka_pubsub.multicast.service import Sequencer
from kafka_pubsub.multicast.task import SequencerTask
from kafka_pubsub.services.metrics import ServiceMetrics
from kafka_pubsub.services.role import Beginning
from tests.multicasts import stage
from tests.support import until
from tests.unit.multicast.test_multicast import home

PATIENCE = 20.0


def test_what_is_read_before_a_task_begins_is_bounded_and_comes_home(
    backend: MemoryBackend, topics: PubSub, monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit in ("_BUFFERS", "_LEAST"):
        monkeypatch.setattr(sequencer_task, limit, 10_000)
    sizes: list[int] = []
    real = SequencerTask._begin_if_known

    def begin(task: SequencerTask) -> int | None:
        sizes.append(task._size if task._sequencer is None else 0)
        return real(task)

    monkeypatch.setattr(SequencerTask, "_begin_if_known", begin)
    for number in range(50):
        stage(backend, "a", "b", message=f"m{number}" + "x" * 1000)
    with Sequencer(topics):
        until(lambda: len(home(backend, "a")) == len(home(backend, "b")) == 50)
    assert home(backend, "a") == [f"m{number}".encode() + b"x" * 1000 for number in range(50)]
    assert 10_000 <= max(sizes) < 20_000


def test_the_inbox_of_a_topic_that_is_gone_from_kafka_answers_all_the_same(
    backend: MemoryBackend, topics: PubSub
) -> None:
    record = backend.catalog.topics()["b"]
    with Sequencer(topics):
        topics.publish_multi(["a", "b"], b"first").result(PATIENCE)
        until(lambda: home(backend, "b") == [b"first"])
    staged = len(home(backend, "b.inbox"))
    with PubSub.in_memory(MemoryBackend(cluster=backend.cluster), services=False) as other:
        before = other.publish_multi(["a", "b"], b"before")
        until(lambda: len(home(backend, "b.inbox")) == staged + 1)
        publisher = topics._cluster.multicast._publisher
        way = way_of_deletion(Target("b", 1, 0, record.inbox_id, record.topic_id), ())
        with publisher._changed:
            gone = publisher._queue(way, BatchMessage(0, None, b"b", ()), SentFuture)
        until(lambda: len(home(backend, "b.inbox")) == staged + 2)
        # As if the sequencer had said that the deletion has its place, and hadn't written to `b` yet.
        topics._cluster.topics.delete("b")
        behind = other.publish_multi(["a", "b"], b"behind")
        with Sequencer(topics) as sequencer:
            before.result(PATIENCE)
            gone.result(PATIENCE)
            with pytest.raises(FailedPrecondition, match="delivered to no topic, because b was deleted"):
                behind.result(PATIENCE)
            until(lambda: home(backend, DEAD) == [b"before"])
            until(lambda: home(backend, "a") == [b"first", b"before"])
            assert sequencer.health().ok


def test_a_sequencer_proposes_nothing_for_an_inbox_that_the_catalog_does_not_list(
    backend: MemoryBackend, topics: PubSub
) -> None:
    stage(backend, "a", "b", message="m")
    place = TopicPartition("b.inbox", 0)
    end = backend.admin.log_range(place)[1]
    role = SequencerRole(backend, ServiceMetrics())
    task = role.begin((place.topic,), 0, [Beginning(Committed(None, ""), 0, end)], "writer")
    records = backend.record_fetch().fetch(place, range(end), 2**20, 1.0).records
    task.receive(0, records, 0)
    task.reach(0, end)
    announced = task.work(1000, 2**20)
    assert announced is not None
    assert not announced.records
    for _ in range(2):
        topics._cluster.topics.delete("b")
    role.causal.look()
    with pytest.raises(FailedPrecondition, match=r"'b\.inbox' isn't in the catalog any more"):
        task.work(1000, 2**20)


def test_a_position_of_another_inbox_counts_for_nothing(backend: MemoryBackend, topics: PubSub) -> None:
    end = backend.admin.log_range(TopicPartition("b.inbox", 0))[1]
    before = Committed(0, SequencerProgress(Checkpoint(7, 0, end, "id"), "another inbox").text())
    role = SequencerRole(backend, ServiceMetrics())
    task = role.begin(("b.inbox",), 0, [Beginning(before, 0, end)], "writer")
    assert task._progress.checkpoint == START
