"""Leaving a group and coming back as a new member, while the stream goes on."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence

import pytest

from kafka_pubsub import Message, PubSub, RetryPolicy
from kafka_pubsub.errors import PubSubError
from kafka_pubsub.log.memory.backend import MemoryBackend
from kafka_pubsub.log.memory.cluster import MemoryCluster
from kafka_pubsub.log.memory.faults import FaultPlan, RequestOutcome, Step
from kafka_pubsub.log.memory.reader import MemoryReader
from kafka_pubsub.log.ports import RebalanceListener
from kafka_pubsub.model import StoredRecord, TopicPartition
from kafka_pubsub.subscribe.retry_topic.retry_io import RetryIO
from kafka_pubsub.subscribe.takeover.rejoining_reader import RejoiningReader
from tests.support import until
from tests.unit.subscribe.workers.holding import PATIENCE

ZERO, ONE = TopicPartition("orders", 0), TopicPartition("orders", 1)


class Told:
    """A stream's listener."""

    def __init__(self) -> None:
        self.words: list[str] = []

    def _hear(self, what: str, partitions: Sequence[TopicPartition]) -> None:
        self.words.append(f"{what} {[place.partition for place in partitions]}")

    def assigned(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        self._hear("assigned", partitions)
        return {}

    def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self._hear("revoked", partitions)

    def lost(self, partitions: Sequence[TopicPartition]) -> None:
        self._hear("lost", partitions)

    def failed(self, partition: TopicPartition | None, error: PubSubError, fatal: bool) -> None:
        self.words.append("failed")


class OneMember(MemoryReader):
    """A reader whose group does what the test says."""

    def __init__(self, told: list[str], *, answers: bool = True) -> None:
        self.told = told
        self.in_hand = False
        self.answers = answers
        self.listener: RebalanceListener
        self.held: list[TopicPartition] = []

    def subscribe(self, topics: Sequence[str], listener: RebalanceListener) -> None:
        self.told.append(f"joins for {topics}")
        self.listener = listener

    def read(self, max_records: int, timeout: float) -> Sequence[StoredRecord]:  # type: ignore[override]
        self.told.append("reads")
        return []

    def settle(self) -> bool:
        return not self.in_hand

    def close(self) -> None:
        self.told.append("leaves")
        if self.answers and self.held:
            self.listener.revoked(self.held)


@pytest.mark.parametrize("what", ["revoked", "lost"])
@pytest.mark.parametrize("unanswered", [True, False])
def test_who_goes_with_an_unanswered_commit_comes_back_as_a_new_member(what: str, unanswered: bool) -> None:
    told: list[str] = []
    members: list[OneMember] = []

    def make() -> OneMember:
        members.append(OneMember(told))
        return members[-1]

    reader, heard = RejoiningReader(make), Told()
    reader.subscribe(["orders"], heard)
    members[0].listener.assigned([ZERO])
    members[0].in_hand = unanswered
    getattr(members[0].listener, what)([ZERO])
    assert len(members) == 1, "it leaves between two reads, never inside a callback"
    reader.read(1, 0)
    reader.read(1, 0)
    again = ["leaves", "joins for ['orders']"] if unanswered else []
    assert told == ["joins for ['orders']", *again, "reads", "reads"]
    assert heard.words == ["assigned [0]", f"{what} [0]"]


@pytest.mark.parametrize(("answers", "word"), [(True, "revoked"), (False, "lost")])
def test_what_it_still_held_is_given_up(answers: bool, word: str) -> None:
    """With the protocol `consumer` only some partitions go; the others go now."""
    members: list[OneMember] = []

    def make() -> OneMember:
        members.append(OneMember([], answers=answers))
        return members[-1]

    reader, heard = RejoiningReader(make), Told()
    reader.subscribe(["orders"], heard)
    members[0].listener.assigned([ZERO, ONE])
    members[0].listener.revoked([ZERO])
    members[0].held = [ONE]
    reader.rejoin()
    reader.read(1, 0)
    assert heard.words == ["assigned [0, 1]", "revoked [0]", f"{word} [1]"]


class Stuck(FaultPlan):
    """The first transaction's commit doesn't get through until the test lets it."""

    def __init__(self) -> None:
        self.reached, self.go_on = threading.Event(), threading.Event()

    def transaction(self, transactional_id: str, step: Step) -> RequestOutcome:
        if step is Step.COMMIT and not self.reached.is_set():
            self.reached.set()
            self.go_on.wait(PATIENCE)
        return RequestOutcome.DONE


@pytest.fixture
def cluster() -> MemoryCluster:
    return MemoryBackend().cluster


@pytest.fixture
def plan() -> Iterator[Stuck]:
    plan = Stuck()
    yield plan
    plan.go_on.set()


def members(cluster: MemoryCluster) -> set[str]:
    with cluster.changed:
        return set(cluster.group("billing").members)


def test_a_move_request_that_does_not_land_at_a_revoke_ends_the_membership_and_not_the_stream(
    cluster: MemoryCluster, plan: Stuck, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RetryIO.wait, "__defaults__", (0.05,))
    acked: list[tuple[str, int]] = []

    def handle(message: Message) -> None:
        if message.data == b"0" and message.delivery_attempt == 1:
            message.nack()
            return
        acked.append((message.ordering_key or "", int(message.data)))
        message.ack()

    with PubSub.in_memory(MemoryBackend(cluster=cluster, faults=plan)) as ps:
        ps.create_topic("orders", partitions=2)
        retry = RetryPolicy(min_backoff=0.01, max_backoff=0.02)
        sub = ps.create_subscription("billing", "orders", message_ordering=True, retry=retry)
        for at in range(10):
            ps.topic("orders").publish(b"%d" % at, ordering_key=f"k{at % 2}").result(PATIENCE)
        with sub.pull(handle) as stream:
            until(plan.reached.is_set)
            before = members(cluster)
            with (
                PubSub.in_memory(MemoryBackend(cluster=cluster)) as other,
                other.subscription("billing").pull(handle),
            ):
                until(lambda: len(members(cluster)) == 2 and not before & members(cluster))
                assert ("k0", 0) not in acked
                plan.go_on.set()
                until(lambda: {number for _, number in acked} == set(range(10)))
            for at in range(10, 20):
                ps.topic("orders").publish(b"%d" % at, ordering_key=f"k{at % 2}").result(PATIENCE)
            until(lambda: {number for _, number in acked} == set(range(20)))
            assert not stream.done()
    for key in ("k0", "k1"):
        numbers = list(dict.fromkeys(number for each, number in acked if each == key))
        assert numbers == sorted(numbers), numbers
