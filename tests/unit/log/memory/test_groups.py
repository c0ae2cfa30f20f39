"""The group under a virtual clock: the barrier, sessions, and the fence, a single step at a time."""

from __future__ import annotations

from kafka_pubsub.errors import FailedPrecondition, NotFound
from kafka_pubsub.model import Committed, TopicPartition
from tests.support import commit
from tests.unit.log.memory.driver import SESSION, Process, cluster_of

AT = TopicPartition("t", 0)


def test_joining_and_learning_the_share_are_two_reads() -> None:
    cluster, _ = cluster_of("t")
    alone = Process(cluster, "a", "t")
    alone.read()
    assert alone.log == []
    alone.read()
    assert alone.log == ["assigned 2"]
    alone.read()
    assert alone.log == ["assigned 2"]


def test_nobody_gets_a_share_before_all_have_given_up() -> None:
    cluster, _ = cluster_of("t")
    first, second = Process(cluster, "a", "t"), Process(cluster, "b", "t")
    first.read()
    first.read()
    for _ in range(5):
        second.read()
    assert (second.log, first.log) == ([], ["assigned 2"])
    first.read()
    assert first.log == ["assigned 2", "revoked 2"]
    second.read()
    assert second.log == ["assigned 1"]
    first.read()
    assert first.log[-1] == "assigned 1"
    assert first.owned | second.owned == {AT, TopicPartition("t", 1)}


def test_commits_count_until_the_generation_rises_and_no_longer() -> None:
    cluster, _ = cluster_of("t")
    first, second = Process(cluster, "a", "t"), Process(cluster, "b", "t")
    first.read()
    first.read()
    second.read()
    assert commit(first.reader, {AT: Committed(1, "rebalance is open")}) == {AT: None}
    first.read()
    # Both have joined, so a new generation has begun; the first hasn't been told yet.
    answer = commit(first.reader, {AT: Committed(2, "old generation")})
    assert isinstance(answer[AT], FailedPrecondition)
    first.read()
    assert commit(first.reader, {AT: Committed(3, "new generation")}) == {AT: None}


def test_a_dead_members_partitions_move_when_its_session_is_over() -> None:
    cluster, clock = cluster_of("t")
    dead, alive = Process(cluster, "a", "t"), Process(cluster, "b", "t")
    for _ in range(4):
        dead.read()
        alive.read()
    assert len(alive.owned) == 1
    clock.advance(SESSION - 0.1)
    alive.read()
    assert len(alive.owned) == 1
    clock.advance(0.2)
    alive.read()
    alive.read()
    assert len(alive.owned) == 2
    assert dead.log[-1] == "assigned 1"


def test_a_member_that_dies_inside_a_rebalance_holds_it_up_for_its_session_only() -> None:
    cluster, clock = cluster_of("t")
    dead = Process(cluster, "a", "t")
    dead.read()
    dead.read()
    alive = Process(cluster, "b", "t")
    for _ in range(3):
        alive.read()
    assert alive.log == []
    clock.advance(SESSION / 2)
    alive.read()
    clock.advance(SESSION / 2 + 0.1)
    alive.read()
    alive.read()
    assert alive.log == ["assigned 2"]


def test_a_stalled_member_is_reported_lost_once_and_comes_back_as_a_new_one() -> None:
    cluster, clock = cluster_of("t")
    stalled = Process(cluster, "a", "t")
    stalled.read()
    stalled.read()
    clock.advance(SESSION + 1)
    answer = commit(stalled.reader, {AT: Committed(5, "")})
    assert isinstance(answer[AT], FailedPrecondition)
    assert stalled.backend.admin.group_offsets("g", "t") == {}
    for _ in range(4):
        stalled.read()
    assert stalled.log == ["assigned 2", "lost 2", "assigned 2"]
    assert commit(stalled.reader, {AT: Committed(6, "")}) == {AT: None}


def test_a_commit_keeps_its_member_alive_as_a_heartbeat_does() -> None:
    cluster, clock = cluster_of("t")
    busy = Process(cluster, "a", "t")
    busy.read()
    busy.read()
    for _ in range(4):
        clock.advance(SESSION - 1)
        assert commit(busy.reader, {AT: Committed(1, "")}) == {AT: None}
    busy.read()
    assert busy.log == ["assigned 2"]


def test_a_session_that_ends_inside_revoked_is_noticed_afterwards() -> None:
    cluster, clock = cluster_of("t")
    slow, other = Process(cluster, "a", "t"), Process(cluster, "b", "t")
    slow.read()
    slow.read()
    other.read()
    slow.on_revoked = lambda: clock.advance(SESSION + 1)
    slow.read()
    other.on_revoked = lambda: None
    for _ in range(6):
        slow.read()
        other.read()
    assert len(slow.owned) == len(other.owned) == 1
    assert "lost 2" not in slow.log, "it had given up already"


def test_who_slept_through_an_open_rebalance_hears_revoked_too_late_to_commit() -> None:
    """A real client had queued that call before the group gave the member up."""
    cluster, clock = cluster_of("t")
    sleeper, successor = Process(cluster, "a", "t"), Process(cluster, "b", "t")
    sleeper.read()
    sleeper.read()
    successor.read()
    clock.advance(SESSION / 2)
    successor.read()
    clock.advance(SESSION / 2 + 1)
    successor.read()
    successor.read()
    assert len(successor.owned) == 2
    answers: list[object] = []
    sleeper.on_revoked = lambda: answers.extend(commit(sleeper.reader, {AT: Committed(9, "late")}).values())
    sleeper.read()
    assert sleeper.log == ["assigned 2", "revoked 2"]
    assert isinstance(answers[0], FailedPrecondition)
    assert successor.reader.committed([AT]) == {AT: Committed(None, "")}


def test_an_eviction_needs_no_time() -> None:
    cluster, _ = cluster_of("t")
    victim = Process(cluster, "a", "t")
    victim.read()
    victim.read()
    cluster.evict("g", "a")
    assert victim.backend.admin.group_members("g") == 0
    victim.read()
    assert victim.log[-1] == "lost 2"


def test_closing_after_the_eviction_says_lost() -> None:
    cluster, _ = cluster_of("t")
    victim = Process(cluster, "a", "t")
    victim.read()
    victim.read()
    cluster.evict("g")
    victim.reader.close()
    assert victim.log == ["assigned 2", "lost 2"]


def test_range_splits_each_topic_by_the_order_of_members() -> None:
    cluster, _ = cluster_of("t", "u", partitions=5)
    members = [Process(cluster, name, "t", "u") for name in ("a", "b")]
    for _ in range(5):
        for member in members:
            member.read()
    assert {at.partition for at in members[0].owned if at.topic == "t"} == {0, 1, 2}
    assert {at.partition for at in members[0].owned if at.topic == "u"} == {0, 1, 2}
    assert {at.partition for at in members[1].owned if at.topic == "u"} == {3, 4}


def test_a_member_that_lists_fewer_topics_breaks_the_co_assignment() -> None:
    """The danger behind "whole or nothing" must be possible here as on a broker."""
    cluster, _ = cluster_of("t", "u", partitions=4)
    both, only = Process(cluster, "a", "t", "u"), Process(cluster, "b", "t")
    for _ in range(5):
        both.read()
        only.read()
    assert {at.partition for at in both.owned if at.topic == "t"} == {0, 1}
    assert {at.partition for at in both.owned if at.topic == "u"} == {0, 1, 2, 3}


def test_more_partitions_open_a_rebalance() -> None:
    cluster, _ = cluster_of("t")
    member = Process(cluster, "a", "t")
    member.read()
    member.read()
    cluster.add_partitions("t", 3)
    for _ in range(3):
        member.read()
    assert member.log == ["assigned 2", "revoked 2", "assigned 3"]


def test_a_topic_that_appears_later_is_found() -> None:
    cluster, _ = cluster_of()
    member = Process(cluster, "a", "t")
    member.read()
    assert isinstance(member.failures[0][1], NotFound)
    member.read()
    assert member.log == ["assigned 0"]
    member.backend.admin.create_topic("t", 1, None, {})
    for _ in range(3):
        member.read()
    assert member.log[-1] == "assigned 1"


def test_a_deleted_topic_takes_its_positions_along() -> None:
    cluster, _ = cluster_of("t")
    member = Process(cluster, "a", "t")
    member.read()
    member.read()
    commit(member.reader, {AT: Committed(4, "")})
    member.backend.admin.delete_topic("t")
    member.backend.admin.create_topic("t", 2, None, {})
    assert member.backend.admin.group_offsets("g", "t") == {}


def test_forgotten_offsets_are_gone_with_their_metadata() -> None:
    cluster, _ = cluster_of("t")
    member = Process(cluster, "a", "t")
    member.read()
    member.read()
    commit(member.reader, {AT: Committed(4, "map")})
    cluster.forget_offsets("g")
    assert member.reader.committed([AT]) == {AT: Committed(None, "")}


def test_subscribing_again_shares_anew() -> None:
    cluster, _ = cluster_of("t", "u")
    member = Process(cluster, "a", "t")
    member.read()
    member.read()
    member.reader.subscribe(["t", "u"], member)
    for _ in range(3):
        member.read()
    assert member.log == ["assigned 2", "revoked 2", "assigned 4"]


def test_who_was_removed_is_refused_before_the_generation_rises() -> None:
    cluster, _ = cluster_of("t")
    removed, other = Process(cluster, "a", "t"), Process(cluster, "b", "t")
    for _ in range(4):
        removed.read()
        other.read()
    cluster.evict("g", "a")
    # The rebalance is open and the other hasn't joined: both know the same generation.
    answer = commit(removed.reader, {AT: Committed(5, "")})
    assert isinstance(answer[AT], FailedPrecondition)
    assert commit(other.reader, {AT: Committed(6, "")}) == {AT: None}
    assert other.reader.committed([AT]) == {AT: Committed(6, "")}


def test_an_epoch_that_rises_is_taken_over_by_the_next_read_and_calls_nobody_back() -> None:
    cluster, _ = cluster_of("t")
    alone = Process(cluster, "a", "t")
    alone.read()
    alone.read()
    before = alone.reader.membership()
    cluster.raise_epoch("g")
    assert isinstance(commit(alone.reader, {AT: Committed(1, "old epoch")})[AT], FailedPrecondition)
    alone.read()
    assert alone.reader.membership() != before
    assert commit(alone.reader, {AT: Committed(2, "new epoch")}) == {AT: None}
    assert alone.log == ["assigned 2"]


def test_a_share_that_was_not_reported_yet_is_reported_after_the_epoch_rose() -> None:
    cluster, _ = cluster_of("t")
    alone = Process(cluster, "a", "t")
    alone.read()
    cluster.raise_epoch("g")
    alone.read()
    assert alone.log == ["assigned 2"]
