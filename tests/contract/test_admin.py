"""Admin: topics come, change and go."""

from __future__ import annotations

import time

import pytest

from kafka_pubsub.errors import AlreadyExists, InvalidArgument, NotFound
from tests.contract.world import PATIENCE, World


def test_a_new_topic_is_as_it_was_asked_for(world: World) -> None:
    name = world.name("contract")
    made = world.backend.admin.create_topic(
        name, 3, 1, {"retention.ms": "3600000", "max.message.bytes": "20000"}
    )
    assert (made.name, made.partitions, made.replication, made.max_message_bytes) == (name, 3, 1, 20_000)
    assert made.config["retention.ms"] == "3600000"
    assert world.backend.admin.topic(name) == made


def test_a_topic_that_asks_for_nothing_takes_a_megabyte(world: World) -> None:
    assert world.backend.admin.topic(world.topic()).max_message_bytes >= 1_000_000


def test_the_ids_of_topics_are_asked_for_together_and_unknown_ones_left_out(world: World) -> None:
    admin = world.backend.admin
    made = {name: admin.topic(name).topic_id for name in (world.topic(), world.topic())}
    assert admin.topic_ids([*made, world.name("unknown")]) == made
    assert admin.topic_ids([]) == {}


def test_a_second_topic_of_the_name_is_refused_and_the_first_untouched(world: World) -> None:
    name = world.topic(partitions=2)
    before = world.backend.admin.topic(name)
    with pytest.raises(AlreadyExists):
        world.backend.admin.create_topic(name, 5, None, {})
    assert world.backend.admin.topic(name) == before


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "ä", "a/b", "x" * 250])
def test_a_name_that_kafka_cannot_hold_is_refused(world: World, name: str) -> None:
    with pytest.raises(InvalidArgument):
        world.backend.admin.create_topic(name, 1, None, {})


def test_names_that_differ_only_in_dot_and_underscore_are_refused(world: World) -> None:
    base = world.name("contract")
    world.backend.admin.create_topic(f"{base}.x", 1, None, {})
    with pytest.raises(InvalidArgument):
        world.backend.admin.create_topic(f"{base}_x", 1, None, {})


@pytest.mark.parametrize("partitions", [0, -5])
def test_a_topic_without_partitions_is_refused(world: World, partitions: int) -> None:
    with pytest.raises(InvalidArgument):
        world.backend.admin.create_topic(world.name("contract"), partitions, None, {})


def test_an_unknown_topic_is_not_found_by_any_request(world: World) -> None:
    admin, name = world.backend.admin, world.name("absent")
    with pytest.raises(NotFound):
        admin.topic(name)
    with pytest.raises(NotFound):
        admin.delete_topic(name)
    with pytest.raises(NotFound):
        admin.update_topic(name, {"retention.ms": "1000"})
    with pytest.raises(NotFound):
        admin.last_stable_offsets(name)


def test_a_deleted_topic_is_gone_and_one_made_anew_is_another(world: World) -> None:
    admin, name = world.backend.admin, world.topic()
    first = admin.topic(name)
    world.write(name, [b"old"])
    admin.delete_topic(name)
    with pytest.raises(NotFound):
        admin.topic(name)
    _await_name(world, name, present=False)
    second = admin.create_topic(name, 1, None, {})
    assert second.topic_id != first.topic_id
    assert admin.last_stable_offsets(name) == {0: 0}


def test_names_lists_what_was_made(world: World) -> None:
    name = world.topic()
    _await_name(world, name, present=True)


def test_settings_change_alone_and_go_back_to_the_default(world: World) -> None:
    admin = world.backend.admin
    name = world.topic(config={"retention.ms": "3600000"})
    default = admin.topic(name).max_message_bytes
    admin.update_topic(name, {"max.message.bytes": "30000"})
    changed = admin.topic(name)
    assert changed.max_message_bytes == 30_000
    assert changed.config["retention.ms"] == "3600000"
    admin.update_topic(name, {"max.message.bytes": None})
    assert admin.topic(name).max_message_bytes == default


def test_last_stable_offsets_are_the_ends_of_all_partitions(world: World) -> None:
    name = world.topic(partitions=3)
    assert world.backend.admin.last_stable_offsets(name) == {0: 0, 1: 0, 2: 0}
    reports = world.write(name, [b"a", b"b", b"c", b"d"], key=b"one key")
    partition = reports[0][1].partition()
    ends = world.backend.admin.last_stable_offsets(name)
    assert ends == {number: 4 if number == partition else 0 for number in range(3)}


def test_offsets_of_a_time_are_those_of_the_first_record_since(world: World) -> None:
    admin, name = world.backend.admin, world.topic(partitions=2)
    assert admin.offsets_at(name, 0) == {}
    reports = world.write(name, [b"a"], key=b"k")
    partition = reports[0][1].partition()
    time.sleep(0.02)
    later = world.write(name, [b"b", b"c"], key=b"k")[0][1].timestamp()[1]
    assert admin.offsets_at(name, 0) == {partition: 0}
    assert admin.offsets_at(name, later) == {partition: 1}
    assert admin.offsets_at(name, later + 3_600_000) == {}


def _await_name(world: World, name: str, *, present: bool) -> None:
    """Brokers learn of a topic in turn, so the list may lag."""
    deadline = time.monotonic() + PATIENCE
    while (name in world.backend.admin.topic_names()) is not present:
        assert time.monotonic() < deadline
