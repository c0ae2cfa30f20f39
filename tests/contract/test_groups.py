"""Admin: a group's positions and members, seen from outside."""

from __future__ import annotations

import pytest

from kafka_pubsub.errors import FailedPrecondition, NotFound, PubSubError
from kafka_pubsub.model import Committed, TopicPartition
from tests.contract.world import World, until
from tests.support import commit


def test_positions_set_from_outside_are_what_a_member_finds(world: World) -> None:
    topic, group = world.topic(partitions=2), world.name("group")
    world.backend.admin.set_positions(group, {TopicPartition(topic, 0): 5, TopicPartition(topic, 1): 0})
    assert world.backend.admin.group_offsets(group, topic) == {0: Committed(5, ""), 1: Committed(0, "")}
    partitions = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    found = world.reader(group).committed(partitions)
    assert found == {partitions[0]: Committed(5, ""), partitions[1]: Committed(0, "")}


def test_only_what_was_committed_in_that_topic_is_reported(world: World) -> None:
    topic, other, group = world.topic(partitions=2), world.topic(), world.name("group")
    world.backend.admin.set_positions(group, {TopicPartition(topic, 1): 7})
    assert world.backend.admin.group_offsets(group, topic) == {1: Committed(7, "")}
    assert world.backend.admin.group_offsets(group, other) == {}


def test_positions_in_several_topics_come_with_one_request(world: World) -> None:
    topic, other, group = world.topic(partitions=2), world.topic(), world.name("group")
    admin, places = world.backend.admin, [TopicPartition(topic, 1), TopicPartition(other, 0)]
    admin.set_positions(group, {places[0]: Committed(7, "note"), places[1]: 0})
    absent = [TopicPartition(topic, 0), TopicPartition(world.name("absent"), 0)]
    assert admin.group_positions(group, [*places, *absent]) == {
        places[0]: Committed(7, "note"),
        places[1]: Committed(0, ""),
    }
    assert admin.group_positions(world.name("none"), places) == {}


def test_an_unknown_group_has_no_positions_and_no_members(world: World) -> None:
    topic, group = world.topic(), world.name("absent")
    assert world.backend.admin.group_offsets(group, topic) == {}
    assert world.backend.admin.group_members(group) == 0
    assert not world.backend.admin.has_members(group)


def test_a_partition_that_never_was_committed_has_no_position(world: World) -> None:
    topic, group = world.topic(partitions=2), world.name("group")
    world.backend.admin.set_positions(group, {TopicPartition(topic, 0): 3})
    missing = TopicPartition(topic, 1)
    assert world.reader(group).committed([missing]) == {missing: Committed(None, "")}


def test_positions_in_a_topic_that_is_not_there_are_refused(world: World) -> None:
    with pytest.raises(PubSubError):
        world.backend.admin.set_positions(world.name("group"), {TopicPartition(world.name("absent"), 0): 1})


def test_members_are_counted(world: World) -> None:
    topic, group = world.topic(partitions=2), world.name("group")
    first, second = world.member(group, topic), world.member(group, topic)
    until(lambda: first.owned and second.owned, first, second)
    admin = world.backend.admin
    assert admin.group_members(group) == 2
    assert admin.has_members(group)
    assert admin.groups()[group]
    assert len(admin.member_hosts(group, admin.groups())) == 2
    second.reader.close()
    until(lambda: len(first.owned) == 2, first)
    assert world.backend.admin.group_members(group) == 1
    first.reader.close()
    assert world.backend.admin.group_members(group) == 0
    assert not world.backend.admin.has_members(group)


@pytest.mark.parametrize(("spread", "shares"), [(False, {0, 4}), (True, {2})])
def test_topics_of_one_partition_are_shared_if_they_are_spread(
    world: World, spread: bool, shares: set[int]
) -> None:
    topics, group = [world.topic() for _ in range(4)], world.name("group")
    members = [world.member(group, *topics, spread=spread) for _ in range(2)]
    until(lambda: {len(each.owned) for each in members} == shares, *members)


def test_a_group_with_members_keeps_its_positions(world: World) -> None:
    topic, group = world.topic(), world.name("group")
    world.backend.admin.set_positions(group, {TopicPartition(topic, 0): 2})
    member = world.member(group, topic)
    until(lambda: member.owned, member)
    with pytest.raises(FailedPrecondition):
        world.backend.admin.set_positions(group, {TopicPartition(topic, 0): 9})
    with pytest.raises(FailedPrecondition):
        world.backend.admin.delete_group(group)
    assert world.backend.admin.group_offsets(group, topic) == {0: Committed(2, "")}


def test_positions_survive_the_last_member_and_can_be_set_again(world: World) -> None:
    topic, group = world.topic(), world.name("group")
    member = world.member(group, topic)
    until(lambda: member.owned, member)
    at = TopicPartition(topic, 0)
    assert commit(member.reader, {at: Committed(4, "note")}) == {at: None}
    member.reader.close()
    assert world.backend.admin.group_offsets(group, topic) == {0: Committed(4, "note")}
    world.backend.admin.set_positions(group, {TopicPartition(topic, 0): 1})
    assert world.backend.admin.group_offsets(group, topic) == {0: Committed(1, "")}


def test_the_room_beside_a_position_is_reported(world: World) -> None:
    assert world.backend.admin.metadata_limit() == 4096


def test_a_deleted_group_is_forgotten(world: World) -> None:
    topic, group = world.topic(), world.name("group")
    world.backend.admin.set_positions(group, {TopicPartition(topic, 0): 2})
    world.backend.admin.delete_group(group)
    assert world.backend.admin.group_offsets(group, topic) == {}
    with pytest.raises(NotFound):
        world.backend.admin.delete_group(group)
