"""Layouts: partitions added, positions of several topics stored together, writers that learn of new partitions."""

from __future__ import annotations

import time

import pytest

from kafka_pubsub.errors import FailedPrecondition, InvalidArgument, NotFound, PubSubError
from kafka_pubsub.log.partitioner import partition_of
from kafka_pubsub.model import Committed, StoredRecord, TopicPartition
from tests.contract.world import PATIENCE, World, flush, until


def test_added_partitions_can_be_used_at_once_and_the_others_keep_their_records(world: World) -> None:
    name = world.topic(partitions=2)
    world.write(name, [b"a", b"b"], key=b"k")
    before = dict(world.backend.admin.last_stable_offsets(name))
    grown = world.backend.admin.add_partitions(name, 5)
    assert grown.partitions == world.backend.admin.topic(name).partitions == 5
    assert world.backend.admin.last_stable_offsets(name) == {**dict.fromkeys(range(5), 0), **before}


@pytest.mark.parametrize("total", [3, 2, 0])
def test_partitions_are_never_taken_away(world: World, total: int) -> None:
    name = world.topic(partitions=3)
    with pytest.raises(InvalidArgument):
        world.backend.admin.add_partitions(name, total)
    assert world.backend.admin.topic(name).partitions == 3


def test_partitions_of_an_unknown_topic_are_not_found(world: World) -> None:
    with pytest.raises(NotFound):
        world.backend.admin.add_partitions(world.name("absent"), 3)


def test_members_get_added_partitions_when_another_joins(world: World) -> None:
    """Of itself a group looks every few minutes only."""
    name, group = world.topic(partitions=1), world.name("group")
    first = world.member(group, name)
    until(lambda: len(first.owned) == 1, first)
    world.backend.admin.add_partitions(name, 4)
    second = world.member(group, name)
    until(lambda: len(first.owned) == len(second.owned) == 2, first, second)


def test_positions_of_several_topics_are_stored_in_one_request(world: World) -> None:
    one, other, group = world.topic(partitions=2), world.topic(), world.name("group")
    admin = world.backend.admin
    admin.set_positions(
        group, {TopicPartition(one, 0): 5, TopicPartition(one, 1): 0, TopicPartition(other, 0): 7}
    )
    assert {n: each for n, each in admin.group_offsets(group, one).items() if each.offset is not None} == {
        0: Committed(5, ""),
        1: Committed(0, ""),
    }
    assert admin.group_offsets(group, other)[0] == Committed(7, "")


def test_positions_are_refused_while_the_group_has_members(world: World) -> None:
    name, group = world.topic(), world.name("group")
    member = world.member(group, name)
    until(lambda: member.owned, member)
    with pytest.raises(FailedPrecondition):
        world.backend.admin.set_positions(group, {TopicPartition(name, 0): 1})


def test_positions_in_an_unknown_topic_are_refused(world: World) -> None:
    with pytest.raises(PubSubError):
        world.backend.admin.set_positions(world.name("group"), {TopicPartition(world.name("absent"), 0): 1})


def test_high_watermarks_count_everything_written(world: World) -> None:
    name = world.topic(partitions=2)
    reports = world.write(name, [b"a", b"b"], key=b"k")
    partition = reports[0][1].partition()
    places = [TopicPartition(name, number) for number in range(2)]
    assert world.backend.admin.high_watermarks(places) == {
        place: 2 if place.partition == partition else 0 for place in places
    }


def test_log_ranges_are_those_of_all_logs(world: World) -> None:
    name = world.topic(partitions=2)
    places = [TopicPartition(name, number) for number in range(2)]
    partition = world.write(name, [b"a", b"b", b"c"], key=b"k")[0][1].partition() or 0
    world.backend.admin.trim(name, {partition: 2})
    assert world.backend.admin.log_ranges(places) == {
        place: (2, 3) if place.partition == partition else (0, 0) for place in places
    }


def test_readable_ends_are_those_of_all_logs_that_answer(world: World) -> None:
    names = [world.topic(partitions=2) for _ in range(3)]
    places = [TopicPartition(name, number) for name in names for number in range(2)]
    for name in names[1:]:
        world.write(name, [b"a", b"b"], key=b"k")
    wanted = {
        place: world.backend.admin.last_stable_offsets(place.topic)[place.partition] for place in places
    }
    assert sorted(wanted.values()) == [0, 0, 0, 0, 2, 2]
    assert world.backend.admin.readable_ends(places, 5.0) == wanted
    absent = TopicPartition(world.name("absent"), 0)
    assert world.backend.admin.readable_ends([absent, *places], 5.0) == wanted


def test_a_writer_that_has_learnt_a_layout_spreads_keys_over_it_from_the_next_record_on(world: World) -> None:
    name = world.topic(partitions=2)
    writer = world.writer()
    keys = [b"key-%d" % number for number in range(40)]

    def write() -> list[int | None]:
        found: dict[bytes, int | None] = {}

        def report(error: object, record: StoredRecord) -> None:
            assert error is None
            found[record.key() or b""] = record.partition()

        for key in keys:
            writer.append(name, b"x", key, None, report)
        flush(writer)
        return [found[key] for key in keys]

    # Twice: knowledge from the first records takes another path.
    for _ in range(2):
        assert write() == [partition_of(key, 2) for key in keys]
    world.backend.admin.add_partitions(name, 7)
    assert _learnt(lambda: writer.relearn(name)) == 7
    for _ in range(2):
        assert write() == [partition_of(key, 7) for key in keys]


def _learnt(ask: object) -> int:
    """Brokers learn of partitions in turn."""
    assert callable(ask)
    deadline = time.monotonic() + PATIENCE
    while (found := ask()) != 7:
        assert time.monotonic() < deadline
    return int(found)
