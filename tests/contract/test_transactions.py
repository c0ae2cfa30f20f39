"""Transactions: records and positions together or not at all, and who may still commit one."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence

import pytest

from kafka_pubsub.errors import (
    BrokerUnavailable,
    DeadlineExceeded,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
)
from kafka_pubsub.log.ports import LogReader
from kafka_pubsub.model import (
    Committed,
    Ending,
    Further,
    Membership,
    NewRecord,
    Outcome,
    Positions,
    TopicPartition,
)
from kafka_pubsub.topics.companion_topics import companion_settings
from tests.contract.world import Member, World, until
from tests.support import commit


class Scene:
    """A member of a group that reads a topic and its retry topic."""

    def __init__(self, world: World, partitions: int = 1) -> None:
        self.world = world
        self.main = world.topic(partitions)
        self.retry = world.topic(partitions)
        self.group = world.name("group")
        self.member = self.join(partitions)
        self.at = TopicPartition(self.main, 0)
        self.behind = TopicPartition(self.retry, 0)

    def join(self, partitions: int) -> Member:
        member = self.world.member(self.group, self.main, self.retry)
        until(lambda: len(member.owned) == 2 * partitions, member)
        return member

    @property
    def membership(self) -> Membership:
        found = self.member.reader.membership()
        assert found is not None
        return found

    def records(self, *values: bytes) -> list[NewRecord]:
        return [NewRecord(self.retry, 0, b"k", value) for value in values]


def _committed(scene: Scene) -> Committed:
    return scene.member.reader.committed([scene.at], 20)[scene.at]


def _ended(outcome: Outcome, ending: Ending) -> Outcome:
    assert outcome.ending is ending, outcome
    return outcome


def _position(reader: LogReader, place: TopicPartition) -> int:
    """How far the reader has read there; -1: it has no position."""
    found = reader.positions([place]).get(place)
    return -1 if found is None else found.offset


def _read_to_the_end(scene: Scene) -> None:
    end = scene.member.reader.high_watermarks([scene.behind])[scene.behind]
    # The marker of an abort may follow the answer, so the position may come to stand behind this end.
    until(lambda: _position(scene.member.reader, scene.behind) >= end, scene.member)


def test_records_and_positions_are_stored_together(world: World) -> None:
    scene = Scene(world)
    record = NewRecord(
        scene.retry, 0, b"k", b"v", [("a", b"1"), ("a", None), ("ps-x", b"\xff")], 1_234_567_000
    )
    plain = NewRecord(scene.retry, 0, None, None)
    outcome = world.transactions().transact(
        [record, plain], {scene.at: Committed(5, "map")}, scene.membership
    )
    assert (outcome.ending, outcome.reason) == (Ending.STORED, None)
    assert list(outcome.offsets) == [0, 1]
    assert _committed(scene) == Committed(5, "map")
    until(lambda: len(scene.member.records) == 2, scene.member)
    first, second = scene.member.records
    assert (first.key(), first.value(), first.headers()) == (
        b"k",
        b"v",
        [("a", b"1"), ("a", None), ("ps-x", b"\xff")],
    )
    assert first.timestamp()[1] == 1_234_567_000
    assert (second.key(), second.value(), second.headers() or []) == (None, None, [])
    assert abs(second.timestamp()[1] / 1000 - time.time()) < 600


def test_positions_that_come_later_are_asked_for_when_the_records_are_taken(world: World) -> None:
    scene = Scene(world)
    before = scene.member.reader.high_watermarks([scene.behind])[scene.behind]
    asked: list[int] = []

    def positions(offsets: Sequence[int]) -> Positions:
        asked.append(scene.member.reader.high_watermarks([scene.behind])[scene.behind])
        assert list(offsets) == [before, before + 1]
        return {scene.at: Committed(5, "map")}

    outcome = world.transactions().transact(scene.records(b"a", b"b"), positions, scene.membership)
    assert (outcome.ending, list(outcome.offsets)) == (Ending.STORED, [before, before + 1])
    assert asked == [before + 2]
    assert _committed(scene) == Committed(5, "map")
    until(lambda: len(scene.member.records) == 2, scene.member)


def test_records_that_come_later_are_in_the_same_transaction(world: World) -> None:
    scene = Scene(world)
    before = scene.member.reader.high_watermarks([scene.behind])[scene.behind]

    def named(offsets: Sequence[int]) -> Positions:
        return {scene.at: Committed(5, f"named {offsets[1]}")}

    outcome = world.transactions().transact(
        scene.records(b"a"), lambda _: Further(scene.records(b"b", b"c"), named), scene.membership
    )
    assert (outcome.ending, list(outcome.offsets)) == (Ending.STORED, [before, before + 1, before + 2])
    assert _committed(scene) == Committed(5, f"named {before + 1}")
    until(lambda: len(scene.member.records) == 3, scene.member)


def test_without_positions_nothing_is_stored_and_the_next_transaction_is(world: World) -> None:
    scene, writer = Scene(world), world.transactions()
    outcome = writer.transact(scene.records(b"a"), lambda _: None, scene.membership)
    assert (_ended(outcome, Ending.ABORTED).refused, list(outcome.offsets)) == ({}, [])
    bad = writer.transact(scene.records(b"b"), lambda _: {scene.at: Committed(5, "a\0b")}, scene.membership)
    assert isinstance(_ended(bad, Ending.ABORTED).reason, InvalidArgument)
    _ended(
        writer.transact(scene.records(b"c"), lambda _: {scene.at: Committed(6, "")}, scene.membership),
        Ending.STORED,
    )
    until(lambda: scene.member.records, scene.member)
    _read_to_the_end(scene)
    assert [record.value() for record in scene.member.records] == [b"c"]
    assert _committed(scene).offset == 6


def test_one_transaction_after_the_other(world: World) -> None:
    scene, writer = Scene(world), world.transactions()
    offsets: list[int] = []
    for number in range(10):
        outcome = writer.transact(
            scene.records(b"%d" % number), {scene.at: Committed(number, "")}, scene.membership
        )
        offsets += _ended(outcome, Ending.STORED).offsets
    until(lambda: len(scene.member.records) == 10, scene.member)
    assert [record.offset() for record in scene.member.records] == offsets
    assert scene.member.values() == [b"%d" % number for number in range(10)]
    assert offsets == [2 * number for number in range(10)], "each marker takes an offset"
    assert _committed(scene) == Committed(9, "")


def test_positions_may_name_where_the_records_are_stored(world: World) -> None:
    scene, writer = Scene(world), world.transactions()
    asked: list[Sequence[int]] = []

    def named(offsets: Sequence[int]) -> dict[TopicPartition, Committed]:
        asked.append(list(offsets))
        return {scene.at: Committed(4, f"at {offsets[1]}")}

    for number in range(2):
        outcome = writer.transact(scene.records(b"a", b"b"), named, scene.membership)
        _ended(outcome, Ending.STORED)
        assert asked.pop() == list(outcome.offsets) == [3 * number, 3 * number + 1]
        assert _committed(scene) == Committed(4, f"at {3 * number + 1}")


def test_positions_that_cannot_be_stored_store_no_records(world: World) -> None:
    scene, writer = Scene(world), world.transactions()
    outcome = writer.transact(
        scene.records(b"a"), lambda offsets: {scene.at: Committed(4, "m" * 5000)}, scene.membership
    )
    _ended(outcome, Ending.ABORTED)
    assert _committed(scene) == Committed(None, "")
    _ended(
        writer.transact(scene.records(b"b"), {scene.at: Committed(2, "")}, scene.membership), Ending.STORED
    )
    until(lambda: len(scene.member.records) == 1, scene.member)
    assert scene.member.values() == [b"b"]


def test_positions_alone_can_be_stored(world: World) -> None:
    scene = Scene(world)
    stored = {scene.at: Committed(3, "main"), scene.behind: Committed(0, "retry")}
    _ended(world.transactions().transact([], stored, scene.membership), Ending.STORED)
    assert scene.member.reader.committed([scene.at, scene.behind], 20) == stored


def test_nothing_passes_without_a_position(world: World) -> None:
    scene = Scene(world)
    with pytest.raises(InvalidArgument, match="position"):
        world.transactions().transact(scene.records(b"v"), {}, scene.membership)
    for broken in (Committed(None, ""), Committed(-1, ""), Committed(1, "a\0b")):
        with pytest.raises(InvalidArgument):
            world.transactions().transact(scene.records(b"v"), {scene.at: broken}, scene.membership)
    assert scene.member.reader.high_watermarks([scene.behind]) == {scene.behind: 0}


def test_a_membership_from_before_a_rebalance_stores_nothing(world: World) -> None:
    scene, writer = Scene(world, partitions=2), world.transactions()
    before = scene.membership
    _ended(writer.transact(scene.records(b"first"), {scene.at: Committed(1, "first")}, before), Ending.STORED)
    second = world.member(scene.group, scene.main, scene.retry)
    until(lambda: len(second.owned) == 2 and len(scene.member.owned) == 2, scene.member, second)
    (lost,) = (place for place in second.owned if place.topic == scene.main)
    stale = writer.transact(scene.records(b"stale"), {lost: Committed(2, "stale")}, before)
    assert isinstance(_ended(stale, Ending.ABORTED).reason, FailedPrecondition)
    assert second.reader.committed([lost], 20)[lost].metadata != "stale"
    fresh = writer.transact(scene.records(b"fresh"), {scene.at: Committed(3, "fresh")}, scene.membership)
    _ended(fresh, Ending.STORED)
    holder = scene.member if scene.behind in scene.member.owned else second
    until(lambda: b"fresh" in holder.values(), scene.member, second)
    assert b"stale" not in holder.values()


def test_a_fresh_membership_may_store_positions_of_what_is_not_its_own(world: World) -> None:
    """The coordinator doesn't fence by ownership: ours has to."""
    scene = Scene(world, partitions=2)
    second = world.member(scene.group, scene.main, scene.retry)
    until(lambda: len(second.owned) == 2 and len(scene.member.owned) == 2, scene.member, second)
    (foreign,) = (place for place in second.owned if place.topic == scene.main)
    outcome = world.transactions().transact([], {foreign: Committed(7, "foreign")}, scene.membership)
    _ended(outcome, Ending.STORED)
    assert second.reader.committed([foreign], 20) == {foreign: Committed(7, "foreign")}


def test_who_has_left_stores_nothing(world: World) -> None:
    scene = Scene(world)
    left = scene.membership
    scene.member.reader.close()
    scene.member = scene.join(1)
    outcome = world.transactions().transact(scene.records(b"v"), {scene.at: Committed(1, "left")}, left)
    assert isinstance(_ended(outcome, Ending.ABORTED).reason, FailedPrecondition)
    assert _committed(scene) == Committed(None, "")
    _read_to_the_end(scene)
    assert scene.member.records == []


def test_a_reader_has_a_membership_from_its_assignment_until_it_is_revoked(world: World) -> None:
    scene = Scene(world)
    reader, writer = scene.member.reader, world.transactions()
    outcomes: list[Outcome] = []
    inside = scene.membership

    def final_commit(partitions: Sequence[TopicPartition]) -> None:
        assert reader.membership() == inside
        outcomes.append(writer.transact(scene.records(b"last"), {scene.at: Committed(4, "last")}, inside))

    scene.member.listener.on_revoked = final_commit
    idle = world.reader(scene.group)
    assert idle.membership() is None
    passing = world.member(scene.group, scene.main, scene.retry)
    until(lambda: outcomes, scene.member, passing)
    scene.member.listener.on_revoked = lambda partitions: None
    _ended(outcomes[0], Ending.STORED)
    until(lambda: passing.owned or scene.member.owned, scene.member, passing)
    scene.member.reader.close()
    assert reader.membership() is None
    until(lambda: scene.at in passing.owned, passing)
    assert passing.reader.committed([scene.at], 20)[scene.at] == Committed(4, "last")


@pytest.mark.parametrize("what", ["too large", "a long map", "no such topic", "no such partition"])
def test_what_is_refused_stores_nothing_and_the_next_goes_through(world: World, what: str) -> None:
    scene, writer = Scene(world), world.transactions()
    world.backend.admin.update_topic(scene.retry, {"max.message.bytes": "20000"})
    noise = random.Random(1).randbytes(100_000)
    extra, metadata = [NewRecord(scene.retry, 0, None, b"beside it")], ""
    if what == "too large":
        extra.append(NewRecord(scene.retry, 0, b"k", noise))
    elif what == "a long map":
        metadata = "m" * 5000
    elif what == "no such topic":
        extra.append(NewRecord(world.name("absent"), 0, b"k", b"v"))
    else:
        extra.append(NewRecord(scene.retry, 9, b"k", b"v"))
    outcome = writer.transact(extra, {scene.at: Committed(1, metadata)}, scene.membership)
    if what == "too large" and not outcome.refused:  # it wasn't alone in its batch
        _ended(outcome, Ending.ABORTED)
        outcome = writer.transact(extra, {scene.at: Committed(1, metadata)}, scene.membership)
    reason = _ended(outcome, Ending.ABORTED).reason
    assert isinstance(reason, NotFound if what.startswith("no such") else InvalidArgument), reason
    assert (1 in outcome.refused) == (what != "a long map"), "who is to blame"
    assert _committed(scene) == Committed(None, "")
    _ended(
        writer.transact(scene.records(b"good"), {scene.at: Committed(2, "")}, scene.membership), Ending.STORED
    )
    until(lambda: scene.member.records, scene.member)
    assert scene.member.values() == [b"good"]


@pytest.mark.parametrize("what", ["too large", "no such topic", "no such partition"])
def test_without_places_the_second_try_at_the_latest_says_who_is_to_blame(world: World, what: str) -> None:
    scene, writer = Scene(world), world.transactions()
    world.backend.admin.update_topic(scene.retry, {"max.message.bytes": "20000"})
    bad = {
        "too large": NewRecord(scene.retry, 0, b"k", random.Random(1).randbytes(100_000)),
        "no such topic": NewRecord(world.name("absent"), 0, b"k", b"v"),
        "no such partition": NewRecord(scene.retry, 9, b"k", b"v"),
    }[what]
    beside = NewRecord(scene.retry, 0, None, b"beside it")

    def transact(*records: NewRecord) -> Outcome:
        return writer.transact(records, {scene.at: Committed(1, "")}, scene.membership, locate=False)

    tries: list[Outcome] = []
    while not tries or tries[-1].ending is Ending.UNKNOWN:
        tries.append(transact(beside, bad))
        assert len(tries) <= 2
    assert all(each.ending is not Ending.STORED for each in tries)
    for _ in range(2):  # a report says which; another for a record that wasn't alone in its batch
        if not tries[-1].refused:
            tries.append(_ended(transact(beside, bad), Ending.ABORTED))
    assert set(tries[-1].refused) == {1}
    assert _committed(scene) == Committed(None, "")
    good = _ended(transact(*scene.records(b"good", b"better")), Ending.STORED)
    assert list(good.offsets) == []
    until(lambda: len(scene.member.records) == 2, scene.member)
    assert scene.member.values() == [b"good", b"better"]


@pytest.mark.parametrize("locate", [True, False])
def test_a_partition_that_was_added_meanwhile_is_never_refused(world: World, locate: bool) -> None:
    """The writer may not know yet: then the transaction is aborted, and the next transaction goes through."""
    scene, writer, other = Scene(world), world.transactions(), world.topic(1)

    def transact(position: int, *records: NewRecord) -> Outcome:
        return writer.transact(records, {scene.at: Committed(position, "")}, scene.membership, locate=locate)

    _ended(transact(1, NewRecord(other, 0, b"k", b"1")), Ending.STORED)
    world.backend.admin.add_partitions(other, 3)
    new = NewRecord(other, 2, b"k", b"2")
    outcome = transact(2, new)
    assert outcome.refused == {}
    if outcome.ending is Ending.ABORTED:
        outcome = transact(2, new)
    _ended(outcome, Ending.STORED)
    place = TopicPartition(other, 2)
    # The record and the end of its transaction, which the broker writes after its answer.
    until(lambda: world.backend.admin.high_watermarks([place])[place] == 2)


def test_an_open_transaction_holds_the_positions_back_until_it_is_fenced(world: World) -> None:
    scene, dead = Scene(world), world.name("dead")
    reader = scene.member.reader
    assert commit(reader, {scene.at: Committed(1, f"by {dead}")}) == {scene.at: None}
    world.leave_open(dead, scene.records(b"never"), {scene.at: Committed(2, "open")}, scene.membership)
    with pytest.raises((DeadlineExceeded, BrokerUnavailable)):
        reader.committed([scene.at], 1.0)
    assert reader.committed_unstable([scene.at]) == {scene.at: Committed(1, f"by {dead}")}
    assert reader.committed([scene.behind], 20) == {scene.behind: Committed(None, "")}
    assert reader.high_watermarks([scene.behind, scene.at]) == {scene.behind: 1, scene.at: 0}
    assert world.backend.admin.last_stable_offsets(scene.retry) == {0: 0}

    world.transactions().fence(dead)
    assert reader.committed([scene.at], 20) == {scene.at: Committed(1, f"by {dead}")}
    _read_to_the_end(scene)
    assert scene.member.records == []
    assert _position(reader, scene.behind) == 2, "the aborted record and its marker"
    assert reader.positions([scene.behind])[scene.behind].epoch is not None, "a marker has an epoch, too"


def test_a_transaction_that_ends_shows_its_positions(world: World) -> None:
    scene, reader = Scene(world), None
    reader = scene.member.reader
    slow = world.leave_open(
        world.name("slow"), scene.records(b"v"), {scene.at: Committed(2, "slow")}, scene.membership
    )
    assert reader.committed_unstable([scene.at]) == {scene.at: Committed(None, "")}
    slow.commit()
    assert _committed(scene) == Committed(2, "slow")
    until(lambda: scene.member.records, scene.member)


def test_a_plain_commit_into_an_open_transaction_wins_over_its_newer_map(world: World) -> None:
    """Why there is a single commit in flight."""
    scene = Scene(world)
    slow = world.leave_open(world.name("slow"), [], {scene.at: Committed(2, "newer")}, scene.membership)
    assert commit(scene.member.reader, {scene.at: Committed(1, "older")}) == {scene.at: None}
    slow.commit()
    assert _committed(scene) == Committed(1, "older")


def test_a_fenced_writer_stores_nothing_and_goes_on_as_a_new_one(world: World) -> None:
    scene, writer = Scene(world), world.transactions()
    _ended(
        writer.transact(scene.records(b"a"), {scene.at: Committed(1, "a")}, scene.membership), Ending.STORED
    )
    world.transactions().fence(writer.transactional_id)
    fenced = writer.transact(scene.records(b"b"), {scene.at: Committed(2, "b")}, scene.membership)
    assert isinstance(_ended(fenced, Ending.ABORTED).reason, FailedPrecondition)
    _ended(
        writer.transact(scene.records(b"c"), {scene.at: Committed(3, "c")}, scene.membership), Ending.STORED
    )
    until(lambda: b"c" in scene.member.values(), scene.member)
    assert scene.member.values() == [b"a", b"c"]


def test_of_two_writers_under_one_id_the_later_one_stays(world: World) -> None:
    scene, name = Scene(world), world.name("same")
    first, second = world.transactions(name), world.transactions(name)
    _ended(first.transact(scene.records(b"a"), {scene.at: Committed(1, "")}, scene.membership), Ending.STORED)
    _ended(
        second.transact(scene.records(b"b"), {scene.at: Committed(2, "")}, scene.membership), Ending.STORED
    )
    _ended(
        first.transact(scene.records(b"x"), {scene.at: Committed(3, "")}, scene.membership), Ending.ABORTED
    )
    assert _committed(scene) == Committed(2, "")


def test_who_fences_itself_goes_on(world: World) -> None:
    scene, writer = Scene(world), world.transactions()
    writer.fence(writer.transactional_id)
    _ended(
        writer.transact(scene.records(b"a"), {scene.at: Committed(1, "")}, scene.membership), Ending.STORED
    )
    writer.fence(writer.transactional_id)
    _ended(
        writer.transact(scene.records(b"b"), {scene.at: Committed(2, "")}, scene.membership), Ending.STORED
    )
    until(lambda: len(scene.member.records) == 2, scene.member)


def test_fencing_an_id_that_nobody_used_changes_nothing(world: World) -> None:
    world.transactions().fence(world.name("nobody"))


def test_a_closed_writer_stores_nothing(world: World) -> None:
    scene, writer = Scene(world), world.transactions()
    writer.close()
    outcome = writer.transact(scene.records(b"v"), {scene.at: Committed(1, "")}, scene.membership)
    assert isinstance(_ended(outcome, Ending.ABORTED).reason, FailedPrecondition)


def test_the_position_passes_what_is_never_read_and_follows_a_seek(world: World) -> None:
    scene = Scene(world)
    reader = scene.member.reader
    assert not world.reader(scene.group).positions([scene.behind])
    assert not world.reader(scene.group).at_end([scene.behind])
    writer = world.transactions()
    for value in (b"a", b"b"):
        _ended(
            writer.transact(scene.records(value), {scene.at: Committed(1, "")}, scene.membership),
            Ending.STORED,
        )
    dead = world.name("dead")
    world.leave_open(dead, scene.records(b"x", b"y"), {scene.at: Committed(2, "")}, scene.membership)
    assert reader.high_watermarks([scene.behind]) == {scene.behind: 6}
    until(lambda: _position(reader, scene.behind) == 4, scene.member)
    assert scene.member.values() == [b"a", b"b"]
    writer.fence(dead)
    until(lambda: _position(reader, scene.behind) == 7, scene.member)
    until(lambda: bool(reader.at_end([scene.behind])), scene.member)
    scene.member.records.clear()
    reader.seek(scene.behind, 2)
    assert 0 <= _position(reader, scene.behind) <= 2 or scene.member.records
    _read_to_the_end(scene)
    assert scene.member.values() == [b"b"]


def test_a_companion_topic_takes_what_its_home_took(world: World) -> None:
    home = world.topic(config={"max.message.bytes": "200000"})
    name = world.name("companion")
    settings = companion_settings(world.backend.admin.topic(home))
    info = world.backend.admin.create_topic(name, 1, None, settings)
    assert info.max_message_bytes > 400_000
    assert (info.config["retention.ms"], info.config["cleanup.policy"]) == ("-1", "delete")
    group = world.name("group")
    member = world.member(group, name)
    until(lambda: member.owned, member)
    membership = member.reader.membership()
    assert membership is not None
    large = random.Random(2).randbytes(199_000)
    # Milliseconds: 1970, and a publisher whose clock is a century ahead.
    records = [
        NewRecord(name, 0, b"k", large, (), stamp)
        for stamp in (1, int(time.time() * 1000) + 3_200_000_000_000)
    ]
    positions = {TopicPartition(name, 0): Committed(0, "")}
    _ended(world.transactions().transact(records, positions, membership), Ending.STORED)
    until(lambda: len(member.records) == 2, member)
    assert [record.timestamp()[1] for record in member.records] == [record.timestamp for record in records]
