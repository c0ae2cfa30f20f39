"""What waits in causal topics, and for what, read from the logs of a cluster in memory."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future

import pytest

from kafka_pubsub import CausalStatus, FailedPrecondition, NotFound, PubSub, aio
from kafka_pubsub.log.memory import MemoryBackend
from kafka_pubsub.model import Committed, NewRecord, TopicPartition
from kafka_pubsub.multicast import service
from kafka_pubsub.multicast.future import Sent
from kafka_pubsub.multicast.layout import GROUP, place_of
from kafka_pubsub.multicast.progress import SequencerProgress
from kafka_pubsub.multicast.records import decode_stage, encode_proposal
from kafka_pubsub.multicast.sequencer import Checkpoint, Sequencer
from kafka_pubsub.multicast.values import Propose
from kafka_pubsub.topics.names import inbox_topic
from tests.multicasts import named, stage
from tests.support import until

PATIENCE = 20.0


def handle(backend: MemoryBackend, topic: str) -> None:
    """Handles the topic's inbox as its sequencer does, in a single pass; proposals only."""
    place = TopicPartition(inbox_topic(topic), 0)
    start, end = backend.admin.log_range(place)
    sequencer = Sequencer(named(backend, topic)[0])
    for record in backend.record_fetch().fetch(place, range(start, end), 2**30, 1.0).records:
        staged = decode_stage(record.headers() or ())
        if staged is None:
            continue
        for output in sequencer.take(record.offset() or 0, staged.stage):
            if isinstance(output, Propose):
                header = encode_proposal(output.proposal)
                inboxes = [inbox_topic(place_of(each).topic) for each in output.topics]
                records = [NewRecord(each, 0, None, None, [header]) for each in inboxes]
                backend.transactions("test").transact(records, {}, None)
    said = SequencerProgress(sequencer.checkpoint)
    backend.admin.set_positions(GROUP, {place: Committed(said.checkpoint.oldest, said.text())})


def held(found: CausalStatus) -> tuple[int, str | None, tuple[str, ...]]:
    """How many messages wait, which message they wait for, and for which topics that message waits."""
    block = found.block
    return found.pending, None if block is None else block.message_id, () if block is None else block.held_by


def test_what_no_sequencer_has_handled_is_held_up_by_its_own_topic(
    backend: MemoryBackend, topics: PubSub
) -> None:
    stage(backend, "a", "b", message="m1")
    stage(backend, "a", message="m2")
    a, b, c = topics.multicast.status()
    assert [(each.topic, each.partition, each.clock, each.unread) for each in (a, b, c)] == [
        ("a", 0, 0, 3),
        ("b", 0, 0, 2),
        ("c", 0, 0, 1),
    ]
    assert held(a) == (2, "m1.0", ("a",))
    assert held(b) == (1, "m1.0", ("b",))
    assert held(c) == (0, None, ())
    assert a.block is not None
    assert a.block.topics == ("a", "b")
    assert topics.multicast.sequencers() == 0


def test_the_topics_whose_proposals_are_missing_hold_a_message_up(
    backend: MemoryBackend, topics: PubSub
) -> None:
    stage(backend, "a", "b", "c", message="m1")
    stage(backend, "a", message="m2")
    handle(backend, "a")
    (a,) = topics.multicast.status("a")
    assert held(a) == (2, "m1.0", ("b", "c"))
    assert a.clock == 2
    handle(backend, "b")
    assert held(topics.multicast.status(topics.topic("a"))[0]) == (2, "m1.0", ("c",))
    handle(backend, "c")
    assert held(topics.multicast.status("a")[0]) == (2, "m1.0", ("a",)), "all have proposed, a hasn't seen it"
    assert held(topics.multicast.status("c")[0]) == (1, "m1.0", ("c",))


def test_each_message_of_a_batch_counts(backend: MemoryBackend, topics: PubSub) -> None:
    stage(backend, "a", "b", message="m1", count=3)
    stage(backend, "a", message="m2", count=2)
    assert [each.pending for each in topics.multicast.status()] == [5, 3, 0]
    handle(backend, "a")
    assert [each.pending for each in topics.multicast.status()] == [5, 3, 0]


def test_nothing_waits_once_sequencers_have_run(topics: PubSub) -> None:
    futures: list[Future[Sent]] = []
    with service.Sequencer(topics) as sequencer:
        sequencer.wait_until_running(PATIENCE)
        assert topics.multicast.sequencers() == 1
        futures += [topics.publish_multi(["a", "b"] if n % 2 else ["b", "c"], b"x") for n in range(20)]
        for future in futures:
            future.result(PATIENCE)
        until(lambda: not any(each.pending or each.unread for each in topics.multicast.status()))
    clock = max(future.result().timestamp.clock for future in futures)
    assert topics.multicast.status("b")[0].clock >= clock


def test_a_status_is_right_while_sequencers_run(topics: PubSub) -> None:
    """No message waits at any time that was delivered before, and a block names the missing topics."""
    with service.Sequencer(topics):
        for _ in range(30):
            futures = [topics.publish_multi(["a", "b", "c"], b"x") for _ in range(5)]
            for each in topics.multicast.status():
                assert each.problem == ""
                assert 0 <= each.pending <= 5
                assert (each.pending == 0) == (each.block is None)
            for future in futures:
                future.result(PATIENCE)


def test_each_partition_has_a_clock_of_its_own(topics: PubSub) -> None:
    topics.create_topic("many", causal=True, partitions=3)
    with service.Sequencer(topics):
        for _ in range(3):
            topics.publish_multi(["a", "many"], b"x", ordering_key="k").result(PATIENCE)
    found = topics.multicast.status("many")
    assert [each.partition for each in found] == [0, 1, 2]
    assert sorted(each.clock > 0 for each in found) == [False, False, True]


def test_a_deleted_topic_is_marked(topics: PubSub) -> None:
    with service.Sequencer(topics):
        topics.delete_topic("b")
    assert [(each.topic, each.deleted) for each in topics.multicast.status()] == [
        ("a", False),
        ("b", True),
        ("c", False),
    ]


def test_records_of_open_transactions_are_counted(backend: MemoryBackend, topics: PubSub) -> None:
    record = NewRecord("a.inbox", 0, None, b"x", [])
    steps = backend.transactions("open").steps([record], {}, None)
    for _ in range(3):
        next(steps)
    assert topics.multicast.status("a")[0].uncommitted == 1


def test_forgotten_positions_unreadable_ones_and_a_lost_inbox_are_named(
    backend: MemoryBackend, topics: PubSub
) -> None:
    stage(backend, "a", "b", message="m1")
    backend.admin.trim("a.inbox", {0: 1})
    text = SequencerProgress(Checkpoint(1, 0, 1)).text()
    backend.admin.set_positions(GROUP, {TopicPartition("b.inbox", 0): Committed(0, text.replace("1", "2"))})
    backend.admin.delete_topic("c.inbox")
    a, b, c = topics.multicast.status()
    backend.admin.create_topic("c.inbox", 1, None, {})
    assert "c.inbox' was deleted and made again by another" in topics.multicast.status("c")[0].problem
    assert a.problem == "the broker has forgotten how far the sequencers were with 'a.inbox'"
    assert "can't be read: it is damaged" in b.problem
    assert c.problem == "no broker finds its inbox 'c.inbox'"


def test_a_topic_that_isnt_causal_or_isnt_there_is_refused(topics: PubSub) -> None:
    topics.create_topic("plain")
    with pytest.raises(FailedPrecondition, match="topic 'plain' isn't causal"):
        topics.multicast.status("plain")
    with pytest.raises(NotFound, match="topic 'nowhere' not found"):
        topics.multicast.status("nowhere")


def test_the_asyncio_version_answers_the_same(backend: MemoryBackend, topics: PubSub) -> None:
    stage(backend, "a", "b", message="m1")

    async def look() -> tuple[list[CausalStatus], int]:
        async with aio.PubSub.in_memory(MemoryBackend(cluster=backend.cluster), services=False) as ps:
            return await ps.multicast.status(ps.topic("a")), await ps.multicast.sequencers()

    assert asyncio.run(look()) == (topics.multicast.status("a"), 0)
