"""Where logs end, and whether read records are still there."""

from __future__ import annotations

import pytest

from kafka_pubsub.errors import DeadlineExceeded, NotFound
from kafka_pubsub.model import Committed, Ending, LogEnd, NewRecord, TopicPartition
from tests.contract.world import PATIENCE, World, until


def _filled(world: World, count: int) -> TopicPartition:
    topic = world.topic()
    world.write(topic, [b"%d" % number for number in range(count)])
    return TopicPartition(topic, 0)


def test_a_log_that_has_all_that_was_read_lost_nothing(world: World) -> None:
    full, empty = _filled(world, 5), TopicPartition(world.topic(), 0)
    fetch = world.record_fetch()
    for end in (LogEnd(5), LogEnd(5, 0), LogEnd(2, 0), LogEnd(0, 0), LogEnd(0)):
        assert fetch.lost_tails({full: end}, PATIENCE) == {}, end
    assert fetch.lost_tails({empty: LogEnd(0)}, PATIENCE) == {}
    assert fetch.lost_tails({}, PATIENCE) == {}


def test_a_log_that_ends_below_what_was_read_lost_what_is_above(world: World) -> None:
    one, other, whole = _filled(world, 5), _filled(world, 3), _filled(world, 4)
    read = {one: LogEnd(9, 0), other: LogEnd(4), whole: LogEnd(4, 0)}
    assert world.record_fetch().lost_tails(read, PATIENCE) == {one: 5, other: 3}


def test_what_retention_deleted_is_not_lost(world: World) -> None:
    at = _filled(world, 9)
    world.backend.admin.trim(at.topic, {0: 6})
    assert world.record_fetch().lost_tails({at: LogEnd(4, 0)}, PATIENCE) == {}
    assert world.record_fetch().lost_tails({at: LogEnd(12, 0)}, PATIENCE) == {at: 9}


def test_a_topic_that_is_gone_is_an_error(world: World) -> None:
    with pytest.raises((NotFound, DeadlineExceeded)):
        world.record_fetch().lost_tails({TopicPartition(world.name("absent"), 0): LogEnd(3)}, 2.0)


def test_a_record_reports_its_leader_s_epoch_and_a_commit_keeps_it(world: World) -> None:
    at = _filled(world, 1)
    (record,) = world.record_fetch().fetch(at, [0], 1000, PATIENCE).records
    assert record.leader_epoch() == 0
    group = world.name("group")
    world.backend.admin.set_positions(group, {at: Committed(1, "told", 0)})
    assert world.backend.admin.group_offsets(group, at.topic) == {0: Committed(1, "told", 0)}


def test_readable_ends_lie_behind_markers_and_below_open_transactions(world: World) -> None:
    at, behind = TopicPartition(world.topic(), 0), TopicPartition(world.topic(), 0)
    member, places = world.member(world.name("group"), at.topic, behind.topic), [at, behind]
    until(lambda: len(member.owned) == 2, member)
    reader, dead = member.reader, world.name("dead")
    membership = reader.membership()
    assert membership is not None
    assert reader.readable_ends(places, 5.0) == {at: LogEnd(0, 0), behind: LogEnd(0, 0)}
    writer = world.transactions()
    outcome = writer.transact([NewRecord(*behind, b"k", b"a")], {at: Committed(0, "")}, membership)
    assert outcome.ending is Ending.STORED
    wanted = {at: LogEnd(0, 0), behind: LogEnd(2, 0)}
    until(lambda: reader.readable_ends(places, 5.0) == wanted)
    world.leave_open(dead, [NewRecord(*behind, b"k", b"x")], {at: Committed(1, "")}, membership)
    assert reader.readable_ends(places, 5.0) == wanted
    writer.fence(dead)
    until(lambda: reader.readable_ends([behind], 5.0) == {behind: LogEnd(4, 0)})
    absent = TopicPartition(world.name("absent"), 0)
    assert reader.readable_ends([absent, behind], 5.0) == {behind: LogEnd(4, 0)}
