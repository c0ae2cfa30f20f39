"""What the contract of all logs can't ask of transactions: both group protocols, full maps, a broker that freezes."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import pytest

from kafka_pubsub.errors import PubSubError
from kafka_pubsub.local import LocalKafka
from kafka_pubsub.local.processes import wait_until_frozen
from kafka_pubsub.local.pytest_plugin import RunningKafka
from kafka_pubsub.log.kafka.backend import GroupProtocol, KafkaBackend
from kafka_pubsub.log.kafka.transactions import KafkaTransactions
from kafka_pubsub.model import Committed, Ending, Membership, NewRecord, Outcome, TopicPartition
from tests.integration.kafka.conftest import MakeBackend
from tests.integration.kafka.member import PATIENCE

Unique = Callable[[str], str]

#: What a full ack map looks like: as many code points of the BMP as an offset may carry.
FULL_MAP = "".join(chr(0x3400 + number % 0x6C00) for number in range(4095))

#: Seconds; what a frozen broker may cost at most, with room for a busy machine.
BOUND = 40.0


class Member:
    """Reads two topics and writes down each assignment."""

    def __init__(self, backend: KafkaBackend, group: str, *topics: str) -> None:
        self.reader = backend.reader(group, f"member-of-{group}")
        self.owned: set[TopicPartition] = set()
        self.shares: list[set[TopicPartition]] = []
        self.seen: list[bytes | None] = []
        if topics:
            self.reader.subscribe(topics, self)

    def assigned(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        self.shares.append(set(partitions))
        self.owned.update(partitions)
        return dict.fromkeys(partitions, 0)

    def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self.owned.difference_update(partitions)

    lost = revoked

    def failed(self, partition: TopicPartition | None, error: PubSubError, fatal: bool) -> None:
        assert not fatal, error

    def read(self) -> None:
        self.seen += [record.value() for record in self.reader.read(100, 0.05)]

    @property
    def membership(self) -> Membership:
        found = self.reader.membership()
        assert found is not None
        return found


def step_until(condition: Callable[[], object], *members: Member) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, [member.shares for member in members]
        for member in members:
            member.read()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_topic_and_its_retry_topic_come_and_go_together(
    make_backend: MakeBackend, unique: Unique, protocol: GroupProtocol
) -> None:
    backend = make_backend(group_protocol=protocol)
    main, group = unique("t"), unique("g")
    retry = f"{main}.sub.{group}.retry"
    for topic in (main, retry):
        backend.admin.create_topic(topic, 5, None, {})
    first = Member(backend, group, main, retry)
    step_until(lambda: len(first.owned) == 10, first)
    before = first.membership
    second = Member(backend, group, main, retry)
    # Who gets more is decided by the members' random ids.
    step_until(lambda: {len(first.owned), len(second.owned)} == {4, 6}, first, second)
    # Under `consumer` a share comes bit by bit (a topic that the client has just heard of comes later): whoever serves
    # a partition has to wait until it has all of that number.
    wholes = [*first.shares, *second.shares] if protocol == "classic" else [first.owned, second.owned]
    for whole in wholes:
        numbers = [{at.partition for at in whole if at.topic == topic} for topic in (main, retry)]
        assert numbers[0] == numbers[1]
    writer = backend.transactions(unique("w"))
    for member in (first, second):
        mine = min(member.owned)
        outcome = writer.transact(
            [NewRecord(retry, 0, None, b"v")], {mine: Committed(1, "")}, member.membership
        )
        assert outcome.ending is Ending.STORED, outcome
    foreign = max(at for at in second.owned if at.topic == main)
    stale = writer.transact([NewRecord(retry, 0, None, b"stale")], {foreign: Committed(9, "stale")}, before)
    assert stale.ending is Ending.ABORTED
    assert second.reader.committed([foreign], PATIENCE)[foreign].metadata != "stale"


def test_more_full_maps_than_one_request_takes_pass_in_one_transaction(
    backend: KafkaBackend, unique: Unique
) -> None:
    topic, group, count = unique("t"), unique("g"), 100
    backend.admin.create_topic(topic, count, None, {})
    member = Member(backend, group, topic)
    step_until(lambda: len(member.owned) == count, member)
    positions = {TopicPartition(topic, number): Committed(number, FULL_MAP) for number in range(count)}
    outcome = backend.transactions(unique("w")).transact([], positions, member.membership)
    assert outcome.ending is Ending.STORED, outcome
    assert member.reader.committed(list(positions), PATIENCE) == positions


def test_a_users_settings_do_not_weaken_it(make_backend: MakeBackend, unique: Unique) -> None:
    backend = make_backend({"compression.type": "none", "linger.ms": 60_000, "batch.size": 1_000_000_000})
    topic, group = unique("t"), unique("g")
    backend.admin.create_topic(topic, 1, None, {"max.message.bytes": "20000"})
    member = Member(backend, group, topic)
    step_until(lambda: member.owned, member)
    # Far above the limit before compression, and still written at once.
    records = [NewRecord(topic, 0, None, b"x" * 3_000_000)]
    positions = {TopicPartition(topic, 0): Committed(0, "")}
    outcome = backend.transactions(unique("w")).transact(records, positions, member.membership)
    assert outcome.ending is Ending.STORED, outcome


@pytest.fixture(scope="module")
def broker(kafka: RunningKafka) -> Iterator[LocalKafka]:
    """A broker of our own, that may be frozen; after `kafka`, which skips when there can be none."""
    with LocalKafka() as broker:
        yield broker


class Scene:
    """A member on a broker that may be frozen."""

    def __init__(self, broker: LocalKafka, unique: Unique) -> None:
        assert broker.pid is not None
        self.pid = broker.pid
        self.backend = KafkaBackend(broker.bootstrap)
        self.topic, self.group = unique("t"), unique("g")
        self.backend.admin.create_topic(self.topic, 2, None, {})
        self.member = self.join()

    def join(self) -> Member:
        member = Member(self.backend, self.group, self.topic)
        step_until(lambda: len(member.owned) == 2, member)
        return member

    def transact(self, writer: KafkaTransactions, number: int) -> Outcome:
        records = [NewRecord(self.topic, 1, None, b"%d" % number)]
        return writer.transact(
            records, {TopicPartition(self.topic, 0): Committed(number, "")}, self.member.membership
        )

    def rejoin(self) -> None:
        self.member.reader.close()
        self.member = self.join()

    def stored(self) -> int | None:
        at = TopicPartition(self.topic, 0)
        return self.member.reader.committed([at], PATIENCE)[at].offset

    def seen(self) -> list[bytes | None]:
        """All that can be read."""
        at = TopicPartition(self.topic, 1)
        end = self.member.reader.high_watermarks([at])[at]
        step_until(
            lambda: [each.offset for each in self.member.reader.positions([at]).values()] == [end],
            self.member,
        )
        return self.member.seen

    def freeze(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)
        wait_until_frozen(self.pid, PATIENCE)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        self.freeze()
        try:
            yield
        finally:
            os.kill(self.pid, signal.SIGCONT)


@pytest.fixture
def scene(broker: LocalKafka, unique: Unique) -> Iterator[Scene]:
    made = Scene(broker, unique)
    yield made
    made.backend.close()


def test_a_frozen_broker_costs_bounded_time_and_nothing_is_stored(scene: Scene, unique: Unique) -> None:
    writer = scene.backend.transactions(unique("w"))
    assert scene.transact(writer, 1).ending is Ending.STORED
    with scene.frozen():
        began = time.monotonic()
        outcome = scene.transact(writer, 2)
        with pytest.raises(PubSubError):
            scene.backend.transactions(unique("w")).fence(unique("nobody"))
        assert time.monotonic() - began < 2 * BOUND
    assert outcome.ending is Ending.ABORTED
    scene.rejoin()
    assert scene.transact(writer, 3).ending is Ending.STORED
    assert scene.stored() == 3
    assert scene.seen() == [b"1", b"3"]


class FrozenAtTheCommit(KafkaTransactions):
    """The broker freezes when everything but the commit is done."""

    freeze: Callable[[], None]

    def _commit(self, *arguments: object) -> Outcome:
        self.freeze()
        return super()._commit(*arguments)  # type: ignore[arg-type]


def test_a_commit_without_an_answer_is_unknown_and_settled_by_fencing_ourselves(
    scene: Scene, unique: Unique
) -> None:
    writer = FrozenAtTheCommit(scene.backend.handles, scene.backend.admin, unique("w"))
    writer.freeze = lambda: None
    assert scene.transact(writer, 1).ending is Ending.STORED
    with scene.frozen():
        os.kill(scene.pid, signal.SIGCONT)
        writer.freeze = scene.freeze
        began = time.monotonic()
        outcome = scene.transact(writer, 2)
        assert time.monotonic() - began < BOUND
    assert outcome.ending is Ending.UNKNOWN
    assert outcome.reason is not None
    writer.freeze = lambda: None
    writer.fence(writer.transactional_id)
    scene.rejoin()
    stored = scene.stored()
    assert scene.seen() == ([b"1", b"2"] if stored == 2 else [b"1"]), "all or nothing"
    assert scene.transact(writer, 3).ending is Ending.STORED
    assert scene.stored() == 3
    writer.close()
