"""Reading: where a reader starts, which records it skips, how it waits."""

from __future__ import annotations

import time

from kafka_pubsub.errors import PubSubError
from kafka_pubsub.model import StoredRecord, TopicPartition
from tests.contract.world import PATIENCE, Member, World, until


def _filled(world: World, count: int = 10) -> TopicPartition:
    topic = world.topic()
    world.write(topic, [b"%d" % number for number in range(count)])
    return TopicPartition(topic, 0)


def _quiet(member: Member, reads: int = 10) -> None:
    for _ in range(reads):
        member.step()


def test_reading_starts_where_the_listener_said(world: World) -> None:
    at = _filled(world)
    member = world.member(world.name("group"), at.topic, starts=lambda partition: 7)
    until(lambda: len(member.records) == 3, member)
    assert [record.offset() for record in member.records] == [7, 8, 9]
    assert member.values() == [b"7", b"8", b"9"]


def test_reading_at_the_end_waits_for_what_is_written_next(world: World) -> None:
    at = _filled(world)
    member = world.member(world.name("group"), at.topic, starts=lambda partition: 10)
    until(lambda: member.owned, member)
    _quiet(member)
    assert member.records == []
    world.write(at.topic, [b"next"])
    until(lambda: member.records, member)
    assert member.values() == [b"next"]


def test_a_partition_left_out_is_never_read(world: World) -> None:
    topic = world.topic(partitions=2)
    for key in (b"a", b"b", b"c", b"d", b"e", b"f"):
        world.write(topic, [b"x"], key=key)
    ends = world.backend.admin.last_stable_offsets(topic)
    assert all(ends.values()), "the keys should reach both partitions"
    member = world.member(
        world.name("group"), topic, starts=lambda partition: None if partition.partition == 0 else 0
    )
    until(lambda: len(member.records) == ends[1], member)
    member.reader.resume([TopicPartition(topic, 0)])
    _quiet(member)
    assert {record.partition() for record in member.records} == {1}


def test_a_partition_that_was_left_out_once_is_read_when_it_gets_a_position(world: World) -> None:
    topic, group = world.topic(), world.name("group")
    world.write(topic, [b"x"])
    starts: list[int | None] = [None]
    member = world.member(group, topic, starts=lambda partition: starts[0])
    until(lambda: member.owned, member)
    starts[0] = 0
    passing = world.member(group, topic, starts=lambda partition: None)
    until(lambda: member.listener.heard("revoked") and (member.owned or passing.owned), member, passing)
    passing.reader.close()
    until(lambda: member.records, member)


def test_a_partition_left_out_can_be_started_later(world: World) -> None:
    """Its retry partition may come in a later assignment."""
    at = _filled(world, 5)
    member = world.member(world.name("group"), at.topic, starts=lambda partition: None)
    until(lambda: member.owned, member)
    _quiet(member, 3)
    assert member.reader.positions([at]).get(at) is None
    member.reader.seek(at, 2)
    member.reader.resume([at])
    until(lambda: len(member.records) == 3, member)
    assert [record.offset() for record in member.records] == [2, 3, 4]


def test_a_read_returns_at_most_what_was_asked_for_in_order(world: World) -> None:
    at = _filled(world, 50)
    member = world.member(world.name("group"), at.topic)
    until(lambda: member.owned, member)
    got: list[StoredRecord] = list(member.records)
    deadline = time.monotonic() + PATIENCE
    while len(got) < 50:
        assert time.monotonic() < deadline
        batch = member.reader.read(7, 0.2)
        assert len(batch) <= 7
        got.extend(batch)
    assert [record.offset() for record in got] == list(range(50))


def test_a_read_without_patience_returns_at_once(world: World) -> None:
    member = world.member(world.name("group"), world.topic())
    until(lambda: member.owned, member)
    began = time.monotonic()
    assert list(member.reader.read(10, 0)) == []
    assert time.monotonic() - began < 5


def test_a_waiting_read_returns_with_the_first_record(world: World) -> None:
    at = _filled(world, 1)
    member = world.member(world.name("group"), at.topic, starts=lambda partition: 0)
    until(lambda: member.records, member)
    world.write(at.topic, [b"second"])
    began = time.monotonic()
    batch = member.reader.read(100, 30)
    assert [record.value() for record in batch] == [b"second"]
    assert time.monotonic() - began < 15, "it must not wait for 100 records"


def test_seek_goes_back_and_forth(world: World) -> None:
    at = _filled(world)
    member = world.member(world.name("group"), at.topic)
    until(lambda: len(member.records) == 10, member)
    member.records.clear()
    member.reader.seek(at, 2)
    until(lambda: len(member.records) == 8, member)
    assert [record.offset() for record in member.records] == list(range(2, 10))
    member.records.clear()
    member.reader.seek(at, 9)
    until(lambda: member.records, member)
    assert [record.offset() for record in member.records] == [9]


def test_a_paused_partition_is_not_read_and_loses_nothing(world: World) -> None:
    topic = world.topic(partitions=2)
    member = world.member(world.name("group"), topic)
    until(lambda: len(member.owned) == 2, member)
    paused = TopicPartition(topic, 0)
    member.reader.pause([paused])
    for key in (b"a", b"b", b"c", b"d", b"e", b"f"):
        world.write(topic, [b"1", b"2"], key=key)
    ends = world.backend.admin.last_stable_offsets(topic)
    assert all(ends.values())
    until(lambda: len(member.records) == ends[1], member)
    _quiet(member)
    assert {record.partition() for record in member.records} == {1}
    member.reader.resume([paused])
    until(lambda: len(member.records) == ends[0] + ends[1], member)
    assert [record.offset() for record in member.records if record.partition() == 0] == list(range(ends[0]))


def test_a_pause_in_the_middle_goes_on_at_the_next_record(world: World) -> None:
    at = _filled(world, 20)
    member = world.member(world.name("group"), at.topic)
    until(lambda: member.owned, member)
    got: list[StoredRecord] = list(member.records)
    deadline = time.monotonic() + PATIENCE
    while len(got) < 20:
        assert time.monotonic() < deadline
        got.extend(member.reader.read(6, 0.2))
        member.reader.pause([at])
        assert list(member.reader.read(6, 0.05)) == []
        member.reader.resume([at])
    assert [record.offset() for record in got] == list(range(20))


def test_pausing_what_is_not_ours_is_passed_over(world: World) -> None:
    member = world.member(world.name("group"), world.topic())
    until(lambda: member.owned, member)
    foreign = TopicPartition(world.topic(), 0)
    member.reader.pause([foreign])
    member.reader.resume([foreign])


def test_a_pause_ends_with_the_assignment(world: World) -> None:
    topic, group = world.topic(), world.name("group")
    member = world.member(group, topic)
    until(lambda: member.owned, member)
    member.reader.pause([TopicPartition(topic, 0)])
    passing = world.member(group, topic)
    until(lambda: member.listener.heard("revoked") and (member.owned or passing.owned), member, passing)
    passing.reader.close()
    until(lambda: member.owned, member)
    world.write(topic, [b"x"])
    until(lambda: member.records, member)


def test_the_range_of_a_log_is_its_first_offset_and_its_next(world: World) -> None:
    at = _filled(world, 3)
    assert world.reader(world.name("group")).log_range(at) == (0, 3)


def test_a_position_beyond_the_log_is_reported_and_not_guessed(world: World) -> None:
    at = _filled(world, 3)
    member = world.member(world.name("group"), at.topic, starts=lambda partition: 1000)
    until(lambda: member.listener.failures, member)
    partition, error, fatal = member.listener.failures[0]
    assert (partition, fatal) == (at, True)
    assert isinstance(error, PubSubError)
    _quiet(member)
    assert member.records == []
