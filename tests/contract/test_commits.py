"""Commits: which are stored, which are refused, and for whom."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

from kafka_pubsub.errors import FailedPrecondition, PubSubError
from kafka_pubsub.model import Committed, TopicPartition
from tests.contract.world import PATIENCE, Member, World, until
from tests.support import commit


def _ready(world: World, partitions: int = 1) -> tuple[Member, TopicPartition, str]:
    topic, group = world.topic(partitions), world.name("group")
    member = world.member(group, topic)
    until(lambda: len(member.owned) == partitions, member)
    return member, TopicPartition(topic, 0), group


def test_offset_and_metadata_come_back_as_they_were_written(world: World) -> None:
    member, at, group = _ready(world)
    stored = Committed(7, "m" * 4095)
    assert commit(member.reader, {at: stored}) == {at: None}
    assert member.reader.committed([at]) == {at: stored}
    assert world.backend.admin.group_offsets(group, at.topic) == {0: stored}


def test_longer_metadata_is_refused_and_the_older_commit_stays(world: World) -> None:
    member, at, _ = _ready(world)
    assert commit(member.reader, {at: Committed(1, "old")}) == {at: None}
    answer = commit(member.reader, {at: Committed(2, "m" * 4097)})
    assert isinstance(answer[at], PubSubError)
    assert member.reader.committed([at]) == {at: Committed(1, "old")}


def test_one_refused_partition_does_not_take_the_others_with_it(world: World) -> None:
    member, good, _ = _ready(world, partitions=2)
    bad = TopicPartition(good.topic, 1)
    answer = commit(member.reader, {good: Committed(3, "fine"), bad: Committed(3, "m" * 5000)})
    assert answer[good] is None
    assert isinstance(answer[bad], PubSubError)
    assert member.reader.committed([good, bad]) == {good: Committed(3, "fine"), bad: Committed(None, "")}


def test_a_later_commit_may_go_back(world: World) -> None:
    member, at, _ = _ready(world)
    commit(member.reader, {at: Committed(9, "")})
    assert commit(member.reader, {at: Committed(4, "")}) == {at: None}
    assert member.reader.committed([at]) == {at: Committed(4, "")}


def test_nothing_to_commit_is_no_error(world: World) -> None:
    member, _, _ = _ready(world)
    assert commit(member.reader, {}) == {}


def test_a_commit_is_answered_though_nothing_is_read(world: World) -> None:
    """Nothing is read while callbacks take long, or while the log is asked something."""
    member, at, _ = _ready(world)
    answers: dict[TopicPartition, PubSubError | None] = {}
    member.reader.commit({at: Committed(3, "")}, answers.update)
    assert member.reader.settle()
    assert answers == {at: None}
    assert not member.reader.unanswered()


def test_a_commit_is_answered_while_all_is_paused(world: World) -> None:
    member, at, _ = _ready(world)
    member.reader.pause([at])
    answers: dict[TopicPartition, PubSubError | None] = {}
    member.reader.commit({at: Committed(3, "")}, answers.update)
    until(lambda: answers, member)
    assert answers == {at: None}


def test_a_commit_that_is_on_its_way_at_a_revoke_is_answered_before_the_final_commit(world: World) -> None:
    member, at, group = _ready(world)
    told: list[Mapping[TopicPartition, PubSubError | None]] = []

    def say(partitions: Sequence[TopicPartition]) -> None:
        if partitions:
            member.reader.commit({at: Committed(5, "on its way")}, told.append)
            told.append(commit_after_it(member, {at: Committed(6, "last word")}))

    member.listener.on_revoked = say
    second = world.member(group, at.topic)
    until(lambda: second.owned or (told and member.owned), member, second)
    member.listener.on_revoked = lambda partitions: None
    assert told == [{at: None}, {at: None}]
    assert second.reader.committed([at]) == {at: Committed(6, "last word")}


def test_a_commit_that_is_on_its_way_at_a_close_is_answered_and_stored(world: World) -> None:
    member, at, group = _ready(world)
    answers: dict[TopicPartition, PubSubError | None] = {}
    member.reader.commit({at: Committed(4, "")}, answers.update)
    member.listener.on_revoked = lambda partitions: settled.append(member.reader.settle())
    settled: list[bool] = []
    member.reader.close()
    assert (settled, answers) == ([True], {at: None})
    assert world.backend.admin.group_offsets(group, at.topic) == {0: Committed(4, "")}


def commit_after_it(
    member: Member, positions: Mapping[TopicPartition, Committed]
) -> Mapping[TopicPartition, PubSubError | None]:
    """The commit before is answered first."""
    assert member.reader.settle()
    return commit(member.reader, positions)


def test_a_commit_inside_revoked_is_stored(world: World) -> None:
    member, at, group = _ready(world)
    answers: list[Mapping[TopicPartition, PubSubError | None]] = []

    def say(partitions: Sequence[TopicPartition]) -> None:
        answers.append(commit(member.reader, {each: Committed(5, "last words") for each in partitions}))

    member.listener.on_revoked = say
    second = world.member(group, at.topic)
    until(lambda: second.listener.events and answers, member, second)
    member.listener.on_revoked = lambda partitions: None
    assert answers[0] == {at: None}
    assert second.reader.committed([at]) == {at: Committed(5, "last words")}


def test_a_commit_inside_revoked_is_stored_at_close(world: World) -> None:
    member, at, group = _ready(world)
    member.listener.on_revoked = lambda partitions: answers.append(
        commit(member.reader, {each: Committed(6, "") for each in partitions})
    )
    answers: list[Mapping[TopicPartition, PubSubError | None]] = []
    member.reader.close()
    assert answers == [{at: None}]
    assert world.backend.admin.group_offsets(group, at.topic) == {0: Committed(6, "")}


def test_a_commit_inside_revoked_is_stored_at_a_close_in_the_middle_of_a_rebalance(world: World) -> None:
    member, at, group = _ready(world)
    second = world.member(group, at.topic)
    until(lambda: world.backend.admin.group_members(group) == 2, second)
    answers: list[Mapping[TopicPartition, PubSubError | None]] = []
    member.listener.on_revoked = lambda partitions: answers.append(
        commit(member.reader, {each: Committed(7, "") for each in partitions})
    )
    member.reader.close()
    assert {at: None} in answers
    until(lambda: at in second.owned, second)
    assert second.reader.committed([at]) == {at: Committed(7, "")}


def test_a_member_that_saw_the_rebalance_may_commit_what_is_not_its_own(world: World) -> None:
    """The coordinator fences by membership, not by ownership; our own fence has to."""
    topic, group = world.topic(partitions=2), world.name("group")
    first, second = world.member(group, topic), world.member(group, topic)
    until(lambda: first.owned and second.owned, first, second)
    (foreign,) = second.owned
    assert commit(first.reader, {foreign: Committed(11, "foreign")}) == {foreign: None}
    assert second.reader.committed([foreign]) == {foreign: Committed(11, "foreign")}


def test_a_member_that_slept_through_a_rebalance_is_refused_and_reported(world: World) -> None:
    topic, group = world.topic(partitions=2), world.name("group")
    with world.lasting(world.impatient) as impatient:
        sleeper = world.member(group, topic, backend=impatient)
        until(lambda: len(sleeper.owned) == 2, sleeper)
        held = frozenset(sleeper.owned)
        successor = world.member(group, topic, backend=impatient)
        until(lambda: len(successor.owned) == 2, successor)
        at = min(held)
        assert commit(successor.reader, {at: Committed(8, "successor")}) == {at: None}
        answers = [commit(sleeper.reader, {at: Committed(3, "sleeper")})]

        sleeper.listener.on_revoked = lambda partitions: answers.append(
            commit(sleeper.reader, {at: Committed(4, "sleeper")})
        )
        until(lambda: sleeper.owned and not sleeper.owned & successor.owned, sleeper, successor)
        # The rebalance was open before the silence: a client may have queued `revoked` by then, though this is too
        # late for commits.
        assert sleeper.listener.heard("lost") + sleeper.listener.heard("revoked") == [held]
        assert all(isinstance(answer[at], FailedPrecondition) for answer in answers)
        assert successor.reader.committed([at]) == {at: Committed(8, "successor")}


def test_a_silent_member_is_reported_that_all_is_lost_and_may_commit_when_it_is_back(world: World) -> None:
    topic, group = world.topic(), world.name("group")
    with world.lasting(world.impatient) as impatient:
        sleeper = world.member(group, topic, backend=impatient)
        until(lambda: sleeper.owned, sleeper)
        held = frozenset(sleeper.owned)
        until(lambda: world.backend.admin.group_members(group) == 0)
        (at,) = held
        answer = commit(sleeper.reader, {at: Committed(3, "too late")})
        assert isinstance(answer[at], FailedPrecondition)
        assert world.backend.admin.group_offsets(group, topic) == {}
        until(lambda: len(sleeper.listener.heard("assigned")) == 2, sleeper)
        assert sleeper.listener.heard("lost") == [held]
        assert sleeper.listener.heard("revoked") == []
        assert commit(sleeper.reader, {at: Committed(5, "back")}) == {at: None}


def test_a_reader_that_never_joined_may_not_commit(world: World) -> None:
    """A generation below 0 would get past the coordinator's fence."""
    topic, group = world.topic(), world.name("group")
    at = TopicPartition(topic, 0)
    world.backend.admin.set_positions(group, {TopicPartition(topic, 0): 2})
    answer = commit(world.reader(group), {at: Committed(9, "")})
    assert isinstance(answer[at], FailedPrecondition)
    assert world.backend.admin.group_offsets(group, topic) == {0: Committed(2, "")}


def test_another_thread_commits_while_the_reader_reads(world: World) -> None:
    member, at, _ = _ready(world)
    answers: list[Mapping[TopicPartition, PubSubError | None]] = []
    ranges: list[tuple[int, int]] = []

    def commit_often() -> None:
        answers.extend(commit(member.reader, {at: Committed(offset, "")}) for offset in range(1, 11))
        ranges.append(member.reader.log_range(at))

    thread = threading.Thread(target=commit_often)
    thread.start()
    until(lambda: not thread.is_alive(), member)
    thread.join(PATIENCE)
    assert answers == [{at: None}] * 10
    assert ranges == [(0, 0)]
    assert member.reader.committed([at]) == {at: Committed(10, "")}
