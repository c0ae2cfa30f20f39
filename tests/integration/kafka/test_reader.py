"""What the contract of all logs can't ask: prefetching, rebalances under load, both protocols, limits of commits."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import pytest

from kafka_pubsub.errors import FailedPrecondition, InvalidArgument, NotFound
from kafka_pubsub.local.pytest_plugin import RunningKafka
from kafka_pubsub.log.kafka.backend import GroupProtocol, KafkaBackend
from kafka_pubsub.model import Committed, TopicPartition
from tests.integration.kafka.conftest import MakeBackend
from tests.integration.kafka.member import Member, fill
from tests.support import commit, until

Unique = Callable[[str], str]

#: What a full ack map looks like: as many code points of the BMP as an offset may carry.
FULL_MAP = "".join(chr(0x3400 + number % 0x6C00) for number in range(4095))


@pytest.mark.parametrize(
    # Enough to be read for some 10 s by a member alone, as long as joining takes under the protocol.
    ("protocol", "records", "pace", "rounds"),
    [("classic", 6000, 0.01, 4), ("consumer", 6000, 0.03, 2)],
)
def test_no_record_is_skipped_or_handed_out_after_its_assignment(
    kafka: RunningKafka,
    make_backend: MakeBackend,
    unique: Unique,
    protocol: GroupProtocol,
    records: int,
    pace: float,
    rounds: int,
) -> None:
    """Members come and go while their queues are full of prefetched records."""
    backend = make_backend(group_protocol=protocol)
    topic, group = unique("t"), unique("g")
    backend.admin.create_topic(topic, 4, None, {})
    fill(kafka.bootstrap, topic, dict.fromkeys(range(4), records))
    members = [Member(backend, group, topic, pace=pace).start()]
    until(lambda: len(_all(members)) > 500)
    for _ in range(rounds):
        members.append(Member(backend, group, topic, pace=pace).start())
        _more(members, members[-1])
        members[-1].stop()
        _more(members, members[0])
        assert len(_all(members)) < 4 * records, "too little to read for this test to say anything"
    until(lambda: len(set(_all(members))) == 4 * records, patience=90)
    members[0].stop()
    assert [member.wrong for member in members] == [[]] * len(members)
    assert [member.raised for member in members] == [None] * len(members)
    # Every revocation committed where it stood, so nothing was read twice either.
    assert len(_all(members)) == 4 * records


def _more(members: Sequence[Member], one: Member) -> None:
    """Waits until this one has read some more; there must be enough left for it."""
    before = len(one.seen)
    until(lambda: len(one.seen) > before + 50)


def _all(members: Sequence[Member]) -> list[tuple[int, int]]:
    return [each for member in members for each in member.seen]


def test_a_resumed_partition_is_read_at_once(
    kafka: RunningKafka, backend: KafkaBackend, unique: Unique
) -> None:
    """Without a nudge librdkafka's fetcher sleeps for up to a second after everything was paused."""
    member, at = _alone(kafka, backend, unique, 1000)
    waits = []
    for _ in range(5):
        member.reader.pause([at])
        assert not member.reader.read(10, 0.3)
        begin = time.monotonic()
        member.reader.resume([at])
        assert member.reader.read(10, 5)
        waits.append(time.monotonic() - begin)
    assert sorted(waits)[2] < 0.3
    member.reader.close()


def test_after_a_pause_no_record_is_missing_or_repeated(
    kafka: RunningKafka, backend: KafkaBackend, unique: Unique
) -> None:
    member, at = _alone(kafka, backend, unique, 1000)
    offsets = [0]
    while len(offsets) < 500:
        offsets += [record.offset() or 0 for record in member.reader.read(7, 2)]
        member.reader.pause([at])
        member.reader.resume([at])
    assert offsets == list(range(len(offsets)))
    member.reader.close()


def test_commits_of_many_full_maps_are_cut_into_requests(backend: KafkaBackend, unique: Unique) -> None:
    """In a single request 120 full maps are more than the broker stores, and all would be refused."""
    topic, group = unique("t"), unique("g")
    backend.admin.create_topic(topic, 120, None, {})
    member = Member(backend, group, topic)
    _read_until(member, lambda: len(member.next) == 120)
    everything = {each: Committed(0, FULL_MAP) for each in member.next}
    assert set(commit(member.reader, everything).values()) == {None}
    assert member.reader.committed(list(everything)) == everything
    member.reader.close()


def test_one_refused_commit_leaves_the_others_stored(
    kafka: RunningKafka, backend: KafkaBackend, unique: Unique
) -> None:
    topic, group = unique("t"), unique("g")
    backend.admin.create_topic(topic, 4, None, {})
    member = Member(backend, group, topic)
    _read_until(member, lambda: len(member.next) == 4)
    texts = ["fine", "x" * 4096, "with \0", "half \ud800"]
    positions = {TopicPartition(topic, number): Committed(0, text) for number, text in enumerate(texts)}
    answers = [commit(member.reader, positions)[TopicPartition(topic, number)] for number in range(4)]
    assert answers[0] is None
    assert all(isinstance(answer, InvalidArgument) for answer in answers[1:])
    stored = member.reader.committed(list(positions))
    assert [stored[TopicPartition(topic, number)].metadata for number in range(4)] == ["fine", "", "", ""]
    member.reader.close()


def test_what_a_listener_raises_comes_out_of_read(
    kafka: RunningKafka, backend: KafkaBackend, unique: Unique
) -> None:
    class Defect(Exception):
        pass

    class Broken(Member):
        def assigned(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
            raise Defect

    topic = unique("t")
    backend.admin.create_topic(topic, 1, None, {})
    member = Broken(backend, unique("g"), topic)
    with pytest.raises(Defect):
        _read_until(member, lambda: False)
    member.reader.close()


def test_an_unknown_topic_is_reported(backend: KafkaBackend, unique: Unique) -> None:
    topic = unique("absent")
    member = Member(backend, unique("g"), topic)
    _read_until(member, lambda: member.failures)
    partition, error, fatal = member.failures[0]
    assert (partition, fatal) == (None, False)
    assert isinstance(error, NotFound)
    assert topic in error.message
    member.reader.close()


def test_reading_on_where_nothing_is_stored_is_reported_and_never_guessed(
    kafka: RunningKafka, backend: KafkaBackend, unique: Unique
) -> None:
    member, at = _alone(kafka, backend, unique, 10)
    member.reader.seek(at, 10_000)
    _read_until(member, lambda: member.failures)
    partition, error, fatal = member.failures[0]
    assert (partition, fatal) == (at, True)
    assert isinstance(error, FailedPrecondition)
    assert "retention" in error.message
    member.reader.close()


def test_after_close_everything_is_refused_and_the_group_is_empty(
    kafka: RunningKafka, backend: KafkaBackend, unique: Unique
) -> None:
    member, at = _alone(kafka, backend, unique, 10)
    group = member.reader._group
    member.reader.close()
    assert member.events == ["assigned", "revoked"]
    assert backend.admin.group_members(group) == 0
    for call in (
        lambda: member.reader.read(1, 0),
        lambda: commit(member.reader, {at: Committed(1, "")}),
        lambda: member.reader.committed([at]),
        lambda: member.reader.pause([at]),
    ):
        with pytest.raises(FailedPrecondition, match="closed"):
            call()
    member.reader.close()


def _alone(
    kafka: RunningKafka, backend: KafkaBackend, unique: Unique, records: int
) -> tuple[Member, TopicPartition]:
    """The only member of a group, after its first record."""
    topic = unique("t")
    backend.admin.create_topic(topic, 1, None, {})
    fill(kafka.bootstrap, topic, {0: records})
    member = Member(backend, unique("g"), topic)
    deadline = time.monotonic() + 45
    while not member.reader.read(1, 0.1):
        assert time.monotonic() < deadline
    return member, TopicPartition(topic, 0)


def _read_until(member: Member, condition: Callable[[], object]) -> None:
    def step() -> object:
        member.reader.read(100, 0.05)
        return condition()

    until(step)
