"""Reading single records again, and cutting logs."""

from __future__ import annotations

import statistics
import time

import pytest

from kafka_pubsub.errors import FailedPrecondition, InvalidArgument, NotFound
from kafka_pubsub.log.ports import RecordFetch
from kafka_pubsub.model import Committed, Fetched, NewRecord, TopicPartition
from tests.contract.world import MEGABYTE, PATIENCE, World, until

LIMIT = 100 * MEGABYTE


def _filled(world: World, count: int) -> TopicPartition:
    topic = world.topic()
    world.write(topic, [b"%d" % number for number in range(count)], b"k", [("h", b"1")])
    return TopicPartition(topic, 0)


def _offsets(fetched: Fetched) -> list[int | None]:
    return [record.offset() for record in fetched.records]


def _fetch(fetch: RecordFetch, at: TopicPartition, offsets: list[int], limit: int = LIMIT) -> Fetched:
    return fetch.fetch(at, offsets, limit, PATIENCE)


def test_exactly_what_was_asked_for_comes_in_order(world: World) -> None:
    at, fetch = _filled(world, 3000), world.record_fetch()
    wanted = [2999, 0, 7, 8, 9, 1500, 1502, 7]
    fetched = _fetch(fetch, at, wanted)
    assert _offsets(fetched) == sorted(set(wanted))
    assert [record.value() for record in fetched.records] == [
        b"%d" % offset for offset in sorted(set(wanted))
    ]
    assert {(record.key(), *(record.headers() or ())) for record in fetched.records} == {(b"k", ("h", b"1"))}
    assert not fetched.missing
    assert _fetch(fetch, at, []) == Fetched((), ())


def test_many_fetches_of_several_partitions_stay_apart(world: World) -> None:
    places, fetch = [_filled(world, 50), _filled(world, 60)], world.record_fetch()
    for offset in (49, 3, 20, 3, 0):
        for at in places:
            (record,) = _fetch(fetch, at, [offset]).records
            assert (record.topic(), record.offset(), record.value()) == (at.topic, offset, b"%d" % offset)


def test_it_stops_when_there_are_enough_bytes_but_brings_one_at_least(world: World) -> None:
    topic = world.topic()
    world.write(topic, [b"x" * 1000] * 10)
    at, fetch = TopicPartition(topic, 0), world.record_fetch()
    assert _offsets(_fetch(fetch, at, list(range(10)), limit=2500)) == [0, 1, 2]
    assert _offsets(_fetch(fetch, at, [5, 6], limit=1)) == [5]
    assert _fetch(fetch, at, [5, 6], limit=1).missing == ()


def test_offsets_without_a_record_are_reported(world: World) -> None:
    topic, group = world.topic(), world.name("group")
    at, fetch = TopicPartition(topic, 0), world.record_fetch()
    member = world.member(group, topic)
    until(lambda: member.owned, member)
    membership = member.reader.membership()
    assert membership is not None
    writer, dead = world.transactions(), world.name("dead")
    for value in (b"a", b"b"):
        writer.transact([NewRecord(topic, 0, None, value)], {at: Committed(0, "")}, membership)
    world.leave_open(dead, [NewRecord(topic, 0, None, b"open")], {at: Committed(1, "")}, membership)
    # a, marker, b, marker, open
    fetched = _fetch(fetch, at, [0, 1, 2, 3])
    assert (_offsets(fetched), list(fetched.missing)) == ([0, 2], [1, 3])
    began = time.monotonic()
    undecided = fetch.fetch(at, [3, 4, 900], LIMIT, 3)
    assert (_offsets(undecided), list(undecided.missing)) == ([], [3]), "nobody can say yet what 4 is"
    assert time.monotonic() - began < 20
    writer.fence(dead)
    decided = fetch.fetch(at, [3, 4, 900], LIMIT, 3)
    assert (_offsets(decided), list(decided.missing)) == ([], [3, 4])
    assert fetch.fetch(at, [900], LIMIT, 1) == Fetched((), ())


def test_what_was_trimmed_is_missing_and_the_rest_is_there(world: World) -> None:
    at, fetch = _filled(world, 1200), world.record_fetch()
    assert _offsets(_fetch(fetch, at, [3])) == [3]
    world.backend.admin.trim(at.topic, {0: 1100})
    fetched = _fetch(fetch, at, [3, 4, 1099, 1100, 1199])
    assert (_offsets(fetched), list(fetched.missing)) == ([1100, 1199], [3, 4, 1099])
    world.backend.admin.trim(at.topic, {0: 1200})
    assert list(_fetch(fetch, at, [3, 1199]).missing) == [3, 1199]


def test_a_trimmed_log_begins_there_and_trimming_less_changes_nothing(world: World) -> None:
    topic = world.topic(partitions=2)
    for key in (b"a", b"b", b"c", b"d", b"e", b"f"):
        world.write(topic, [b"x"] * 5, key)
    ends = world.backend.admin.last_stable_offsets(topic)
    assert min(ends.values()) >= 5
    world.backend.admin.trim(topic, {0: 4, 1: 2})
    world.backend.admin.trim(topic, {0: 1})
    world.backend.admin.trim(topic, {})
    reader = world.reader(world.name("group"))
    assert reader.log_range(TopicPartition(topic, 0)) == (4, ends[0])
    assert reader.log_range(TopicPartition(topic, 1)) == (2, ends[1])


def test_more_than_there_is_cannot_be_trimmed(world: World) -> None:
    at = _filled(world, 3)
    with pytest.raises(FailedPrecondition):
        world.backend.admin.trim(at.topic, {0: 4})
    with pytest.raises(InvalidArgument):
        world.backend.admin.trim(at.topic, {0: -1})
    with pytest.raises(NotFound):
        world.backend.admin.trim(world.name("absent"), {0: 1})
    assert world.reader(world.name("group")).log_range(at) == (0, 3)


def test_a_topic_that_is_not_there_is_not_found(world: World) -> None:
    with pytest.raises(NotFound):
        _fetch(world.record_fetch(), TopicPartition(world.name("absent"), 0), [1])


def test_a_closed_one_fetches_nothing(world: World) -> None:
    at, fetch = _filled(world, 3), world.record_fetch()
    assert _offsets(_fetch(fetch, at, [1])) == [1]
    fetch.close()
    fetch.close()
    with pytest.raises(FailedPrecondition):
        _fetch(fetch, at, [1])


def test_one_topic_after_the_other_is_read_at_once(world: World) -> None:
    """A topic of which a consumer has never heard cost a second before."""
    places = [_filled(world, 1) for _ in range(8)]
    fetch = world.record_fetch()
    took = []
    for at in places:
        began = time.monotonic()
        assert _offsets(_fetch(fetch, at, [0])) == [0]
        took.append(time.monotonic() - began)
    assert statistics.median(took[1:]) < 0.4, took
