"""Publishing to causal topics, and their sequencer, on a cluster in memory."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from kafka_pubsub import PubSub
from kafka_pubsub.errors import PubSubError
from kafka_pubsub.log.memory import MemoryBackend, VirtualClock
from kafka_pubsub.log.memory.faults import FaultPlan, RequestOutcome
from kafka_pubsub.model import Committed, NewRecord, TopicPartition
from kafka_pubsub.multicast.layout import GROUP
from kafka_pubsub.multicast.role import SequencerRole
from kafka_pubsub.multicast.service import Sequencer
from kafka_pubsub.services.trimming import Trimming
from tests.support import until

PATIENCE = 20.0
NAMES = ("a", "b", "c")


@pytest.fixture
def running(topics: PubSub) -> Iterator[Sequencer]:
    with Sequencer(topics) as sequencer:
        yield sequencer.wait_until_running(PATIENCE)


def home(backend: MemoryBackend, topic: str, partition: int = 0) -> list[bytes]:
    place = TopicPartition(topic, partition)
    start, end = backend.admin.log_range(place)
    found = backend.record_fetch().fetch(place, range(start, end), 2**30, 1.0)
    return [each.value() or b"" for each in found.records]


def test_a_message_gets_to_all_its_topics_and_no_other(
    backend: MemoryBackend, topics: PubSub, running: Sequencer
) -> None:
    sent = topics.publish_multi(["a", "c"], b"both", attributes={"n": "1"}).result(PATIENCE)
    alone = topics.topic("b").publish(b"alone", ordering_key="k").result(PATIENCE)
    assert sent.message_id != alone
    until(lambda: [home(backend, name) for name in NAMES] == [[b"both"], [b"alone"], [b"both"]])


def test_a_message_has_its_key_its_attributes_and_its_id(topics: PubSub, running: Sequencer) -> None:
    sub = topics.create_subscription("s", "b", message_ordering=True)
    sent = topics.publish_multi(["a", "b"], b"x", ordering_key="k", attributes={"n": "1"}).result(PATIENCE)
    (message,) = sub.receive(10, PATIENCE)
    assert (message.data, message.ordering_key, message.attributes) == (b"x", "k", {"n": "1"})
    assert (message.message_id, message.handles, message.event) == (sent.message_id, (), None)


def test_a_record_has_the_time_of_its_release_and_a_message_that_of_its_publisher() -> None:
    clock = VirtualClock()
    with PubSub.in_memory(clock=clock, services=False) as ps:
        ps.create_topic("a", causal=True)
        sub = ps.create_subscription("s", "a")
        backend = ps._cluster.backend
        backend.admin.update_topic("a", {"message.timestamp.type": "CreateTime"})
        published = clock.now()
        waiting = ps.publish_multi(["a"], b"x")
        until(lambda: backend.admin.log_range(TopicPartition("a.inbox", 0))[1] > 0)
        clock.advance(20.0)
        with Sequencer(ps):
            waiting.result(PATIENCE)
        place = TopicPartition("a", 0)
        (record,) = backend.record_fetch().fetch(place, [0], 2**20, 1.0).records
        assert record.timestamp()[1] >= (published + 20) * 1000
        (message,) = sub.receive(1, PATIENCE)
        assert message.publish_time.timestamp() == pytest.approx(published, abs=0.01)


def test_all_topics_have_the_messages_of_several_publishers_in_one_order(
    backend: MemoryBackend, topics: PubSub, running: Sequencer
) -> None:
    choices = [["a", "b"], ["b", "c"], ["a", "c"], ["a", "b", "c"], ["c"]]
    with PubSub.in_memory(MemoryBackend(cluster=backend.cluster), services=False) as other:
        futures = [
            (f"{number}{who}".encode(), names, ps.publish_multi(names, f"{number}{who}".encode()))
            for number, names in zip(range(40), itertools.cycle(choices), strict=False)
            for who, ps in enumerate((topics, other))
        ]
        sent = {data: (names, future.result(PATIENCE).timestamp) for data, names, future in futures}
    count = sum(len(names) for names, _ in sent.values())
    until(lambda: sum(len(home(backend, name)) for name in NAMES) == count)
    for name in NAMES:
        mine = [data for data, (names, _) in sent.items() if name in names]
        assert home(backend, name) == sorted(mine, key=lambda data: sent[data][1])


def test_a_second_sequencer_goes_on_where_the_first_one_stopped(
    backend: MemoryBackend, topics: PubSub, running: Sequencer
) -> None:
    first = topics.publish_multi(["a", "b"], b"1").result(PATIENCE)
    running.stop(PATIENCE)
    waiting = topics.publish_multi(["b", "a"], b"2")
    with Sequencer(topics) as successor:
        successor.wait_until_running(PATIENCE)
        assert waiting.result(PATIENCE).timestamp > first.timestamp
        until(lambda: home(backend, "a") == home(backend, "b") == [b"1", b"2"])


def test_a_new_causal_topic_is_taken_up(topics: PubSub, running: Sequencer) -> None:
    topics.create_topic("d", causal=True)
    topics.publish_multi(["a", "d"], b"x").result(PATIENCE)


def test_a_sequencer_runs_before_there_is_a_causal_topic(ps: PubSub) -> None:
    with Sequencer(ps) as sequencer:
        assert sequencer.wait_until_running(PATIENCE).health().ok
        ps.create_topic("a", causal=True)
        ps.publish_multi(["a"], b"x").result(PATIENCE)


def test_two_sequencers_share_topics_of_one_partition(topics: PubSub, running: Sequencer) -> None:
    topics.create_topic("d", causal=True)
    with Sequencer(topics) as second:
        until(lambda: [each.health().partitions for each in (running, second)] == [2, 2])
        for _ in range(5):
            topics.publish_multi(["a", "b", "c", "d"], b"x").result(PATIENCE)
        until(lambda: [each.metrics().get("delivered") for each in (running, second)] == [10, 10])


class PlainCommits(FaultPlan):
    """Counts the commits that are made outside of transactions."""

    def __init__(self) -> None:
        self.count = 0

    def commit(
        self, group: str, member: str, positions: Mapping[TopicPartition, Committed]
    ) -> RequestOutcome:
        self.count += 1
        return RequestOutcome.DONE


@pytest.mark.parametrize("trimmed", [False, True])
def test_a_sequencer_whose_offsets_are_forgotten_delivers_nothing_again(
    backend: MemoryBackend, topics: PubSub, trimmed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not trimmed:
        monkeypatch.setattr(Trimming, "_trim", lambda self: None)
    with Sequencer(topics):
        for number in range(3):
            topics.publish_multi(["a", "b"], b"%d" % number).result(PATIENCE)
        until(lambda: len(home(backend, "a")) == len(home(backend, "b")) == 3)
    assert (backend.admin.log_range(TopicPartition("a.inbox", 0))[0] > 0) == trimmed
    backend.admin.delete_group(GROUP)
    with Sequencer(topics) as again:
        until(lambda: "forgotten it" in again.health().error)
        assert "delete_topic('a'), and create_topic" in again.health().error
        topics.publish_multi(["c"], b"another").result(PATIENCE)
    assert home(backend, "a") == home(backend, "b") == [b"0", b"1", b"2"]


def test_what_was_staged_before_the_first_sequencer_began_is_delivered(
    backend: MemoryBackend, topics: PubSub
) -> None:
    waiting = topics.publish_multi(["a", "b"], b"first")
    until(lambda: backend.admin.log_range(TopicPartition("b.inbox", 0))[1] > 0)
    with Sequencer(topics):
        waiting.result(PATIENCE)


def test_positions_are_committed_in_transactions_only(backend: MemoryBackend, topics: PubSub) -> None:
    # A plain commit could arrive late, under a newer membership, and take the next owner's positions back.
    plain = PlainCommits()
    with (
        PubSub.in_memory(MemoryBackend(cluster=backend.cluster, faults=plain), services=False) as one,
        Sequencer(one) as first,
    ):
        first.wait_until_running(PATIENCE)
        topics.publish_multi(NAMES, b"1").result(PATIENCE)
        with Sequencer(topics) as second:
            until(lambda: second.health().partitions > 0)
            topics.publish_multi(NAMES, b"2").result(PATIENCE)
    assert plain.count == 0


def test_messages_of_a_key_stay_in_their_partitions(backend: MemoryBackend, ps: PubSub) -> None:
    ps.create_topic("one", causal=True)
    ps.create_topic("many", causal=True, partitions=3)
    with Sequencer(ps) as sequencer:
        sequencer.wait_until_running(PATIENCE)
        futures = [
            ps.publish_multi(["one", "many"], f"{key}{number}".encode(), ordering_key=key)
            for number in range(5)
            for key in "pqr"
        ]
        for future in futures:
            future.result(PATIENCE)
        until(lambda: sequencer.metrics().get("delivered") == 2 * len(futures))
    logs = [home(backend, "many", number) for number in range(3)]
    assert sorted(itertools.chain(*logs)) == sorted(home(backend, "one"))
    for key in b"pqr":
        (mine,) = [found for log in logs if (found := [each for each in log if each[0] == key])]
        assert mine == [f"{chr(key)}{number}".encode() for number in range(5)]


def test_a_record_of_an_inbox_that_isnt_ours_is_passed_over(
    backend: MemoryBackend, topics: PubSub, running: Sequencer
) -> None:
    writer = backend.transactions("foreign")
    writer.transact([NewRecord("a.inbox", 0, None, b"?", [("ps-stage", b"?")])], {}, None)
    topics.publish_multi(["a", "b"], b"ours").result(PATIENCE)
    until(lambda: home(backend, "a") == home(backend, "b") == [b"ours"])
    running.stop(PATIENCE)
    assert running.metrics()["skipped"] == 1


def test_a_new_topic_joins_the_others_without_a_new_member(ps: PubSub) -> None:
    ps.create_topic("a", causal=True)
    with Sequencer(ps) as sequencer:
        ps.publish_multi(["a"], b"1").result(10)
        engine = sequencer._engine
        ps.create_topic("b", causal=True)
        ps.publish_multi(["a", "b"], b"2").result(10)
        ps.delete_topic("b")
        ps.create_topic("b", causal=True)
        ps.publish_multi(["a", "b"], b"3").result(10)
        assert sequencer._engine is engine


class Asked(FaultPlan):
    """Notes each topic that is asked for."""

    def __init__(self) -> None:
        self.topics: list[str] = []

    def request(self, operation: str, name: str) -> PubSubError | None:
        if operation == "topic":
            self.topics.append(name)
        return None


def test_inboxes_whose_tasks_begin_are_asked_for_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SequencerRole, "_check_next", lambda role: False)
    asked = Asked()
    serving = MemoryBackend(faults=asked)
    names = ["a", "b", "c"]
    with PubSub.in_memory(MemoryBackend(cluster=serving.cluster), services=False) as ps:
        for name in names:
            ps.create_topic(name, causal=True)
        with PubSub.in_memory(serving, services=False) as other, Sequencer(other) as sequencer:
            until(lambda: sequencer.health().partitions == len(names))
            ps.create_topic("new", causal=True)
            until(lambda: sequencer.health().partitions == len(names) + 1)
            ps.publish_multi(["new", *names], b"x").result(PATIENCE)
    assert not [name for name in asked.topics if name.endswith(".inbox")]


def test_a_topic_that_another_process_made_again_without_an_order_is_published_to_directly(
    backend: MemoryBackend, topics: PubSub, running: Sequencer
) -> None:
    topic = topics.topic("a")
    ordered = [topic.publish(b"ordered").result(PATIENCE) for _ in range(2)]
    assert not any(each.startswith("a:0:") for each in ordered)
    with PubSub.in_memory(MemoryBackend(cluster=backend.cluster), services=False) as other:
        other.delete_topic("a")
        other.delete_topic("a")  # and its inbox
        other.create_topic("a", partitions=1)
    topics._cluster.publishers["a"].renew()  # as its pool does from time to time
    assert topic.publish(b"direct").result(PATIENCE) == "a:0:0"
    assert home(backend, "a") == [b"direct"]


def test_no_history_tells_of_messages_that_a_sequencer_orders(
    backend: MemoryBackend, running: Sequencer, tmp_path: Path
) -> None:
    with PubSub.in_memory(
        MemoryBackend(cluster=backend.cluster), services=False, history=tmp_path
    ) as recorded:
        recorded.topic("a").publish(b"x").result(PATIENCE)
    (file,) = tmp_path.glob("publisher-a-*")
    assert '"failed"' not in file.read_text()
    assert '"send"' not in file.read_text()
