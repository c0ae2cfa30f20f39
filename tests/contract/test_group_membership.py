"""Readers of a group: which partitions each holds, and what their listeners hear."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from kafka_pubsub.errors import NotFound
from kafka_pubsub.model import TopicPartition
from tests.contract.world import World, until


def _all(topic: str, partitions: int) -> set[TopicPartition]:
    return {TopicPartition(topic, number) for number in range(partitions)}


def test_a_single_member_is_assigned_everything_once(world: World) -> None:
    topic = world.topic(partitions=4)
    member = world.member(world.name("group"), topic)
    until(lambda: member.owned, member)
    assert member.listener.heard("assigned") == [frozenset(_all(topic, 4))]
    assert member.listener.heard("revoked") == member.listener.heard("lost") == []


def test_a_second_member_takes_its_share_after_the_first_gave_up_all(world: World) -> None:
    topic, group = world.topic(partitions=4), world.name("group")
    first = world.member(group, topic)
    until(lambda: len(first.owned) == 4, first)
    second = world.member(group, topic)
    until(lambda: len(first.owned) == len(second.owned) == 2, first, second)
    assert first.owned | second.owned == _all(topic, 4)
    assert first.listener.heard("revoked") == [frozenset(_all(topic, 4))]
    assert first.listener.heard("lost") == second.listener.heard("lost") == []


def test_nobody_holds_a_partition_that_another_has_not_given_up(world: World) -> None:
    topic, group = world.topic(partitions=4), world.name("group")
    first = world.member(group, topic)
    until(lambda: len(first.owned) == 4, first)
    second = world.member(group, topic)
    overlaps: list[set[TopicPartition]] = []
    for member, other in ((first, second), (second, first)):

        def look(partitions: Sequence[TopicPartition], other: object = other) -> None:
            assert other is first or other is second
            overlaps.append(set(partitions) & (first if other is first else second).owned)

        member.listener.on_assigned = look
    until(lambda: len(first.owned) == len(second.owned) == 2, first, second)
    assert overlaps
    assert not any(overlaps)


def test_equal_lists_give_a_member_the_same_numbers_of_all_topics(world: World) -> None:
    topics = [world.topic(partitions=6) for _ in range(3)]
    group = world.name("group")
    members = [world.member(group, *topics) for _ in range(4)]
    until(lambda: all(member.owned for member in members), *members)
    until(lambda: sum(len(member.owned) for member in members) == 18, *members)
    for member in members:
        shares = [{at.partition for at in member.owned if at.topic == topic} for topic in topics]
        assert shares[0] == shares[1] == shares[2]


def test_a_topic_and_its_retry_topic_come_in_one_assignment(world: World) -> None:
    topics = [world.topic(partitions=5) for _ in range(2)]
    group = world.name("group")
    first = world.member(group, *topics)
    until(lambda: len(first.owned) == 10, first)
    second = world.member(group, *topics)
    until(lambda: {len(first.owned), len(second.owned)} == {4, 6}, first, second)
    for share in [*first.listener.heard("assigned"), *second.listener.heard("assigned")]:
        numbers = [{at.partition for at in share if at.topic == topic} for topic in topics]
        assert numbers[0] == numbers[1]


def test_who_leaves_is_reported_revoked_and_the_others_take_over(world: World) -> None:
    topic, group = world.topic(partitions=2), world.name("group")
    first, second = world.member(group, topic), world.member(group, topic)
    until(lambda: first.owned and second.owned, first, second)
    held = frozenset(second.owned)
    before = len(second.listener.heard("revoked"))
    second.reader.close()
    assert second.listener.heard("revoked")[before:] == [held]
    until(lambda: first.owned == _all(topic, 2), first)


def test_a_reader_that_closes_takes_no_share_that_comes_meanwhile(world: World) -> None:
    """A listener that took the partition on would ask a reader that answers no more, and its stream would end."""
    topic, group = world.topic(partitions=2), world.name("group")
    first = world.member(group, topic)
    until(lambda: first.owned, first)
    second = world.member(group, topic)

    def has_given_up() -> bool:
        first.step(0)  # so short that its next share isn't told in the same read
        return not first.owned

    until(has_given_up, second)
    until(lambda: second.owned, second)
    second.step(0.5)  # the first one's share has come by now, and waits to be told
    first.reader.close()
    assert len(first.listener.heard("assigned")) == 1
    until(lambda: second.owned == _all(topic, 2), second)


def test_a_second_close_changes_nothing(world: World) -> None:
    topic = world.topic()
    member = world.member(world.name("group"), topic)
    until(lambda: member.owned, member)
    member.reader.close()
    member.reader.close()
    assert len(member.listener.heard("revoked")) == 1


def test_a_reader_that_was_never_used_closes_silently(world: World) -> None:
    member = world.member(world.name("group"), world.topic())
    member.reader.close()
    assert member.listener.events == []


def test_more_members_than_partitions_leave_one_with_nothing(world: World) -> None:
    topic, group = world.topic(partitions=1), world.name("group")
    first = world.member(group, topic)
    until(lambda: first.owned, first)
    second = world.member(group, topic)
    until(lambda: first.listener.heard("revoked") and (first.owned or second.owned), first, second)
    assert len(first.owned) + len(second.owned) == 1


def test_the_listener_is_called_by_the_thread_that_reads(world: World) -> None:
    topic, group = world.topic(partitions=2), world.name("group")
    first = world.member(group, topic)
    until(lambda: first.owned, first)
    second = world.member(group, topic)
    until(lambda: second.owned and first.owned, first, second)
    assert first.listener.threads == {threading.get_ident()}


def test_what_a_listener_raises_comes_out_of_read(world: World) -> None:
    member = world.member(world.name("group"), world.topic())

    def fail(partitions: Sequence[TopicPartition]) -> None:
        raise ZeroDivisionError("from the listener")

    member.listener.on_assigned = fail
    with pytest.raises(ZeroDivisionError, match="from the listener"):
        until(lambda: False, member)


def test_a_topic_that_is_not_there_is_reported_as_not_found(world: World) -> None:
    member = world.member(world.name("group"), world.name("absent"))
    until(lambda: member.listener.failures, member)
    _, error, _ = member.listener.failures[0]
    assert isinstance(error, NotFound)
    assert not member.owned
