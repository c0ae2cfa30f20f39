"""A rebalance in the middle of a read, scripted: a broker doesn't bring it about at will."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import cast

import pytest
from confluent_kafka import Consumer, KafkaError, Message
from confluent_kafka import TopicPartition as KafkaPartition

from kafka_pubsub.errors import PubSubError
from kafka_pubsub.log.kafka import reader
from kafka_pubsub.log.kafka.admin import KafkaAdmin
from kafka_pubsub.log.kafka.client_factory import ClientFactory, OnError
from kafka_pubsub.log.kafka.configuration import Configuration, ConfigValue
from kafka_pubsub.log.kafka.reader import KafkaLogReader
from kafka_pubsub.model import StoredRecord, TopicPartition

Callback = Callable[[object, list[KafkaPartition]], None]
P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


class ScriptedConsumer:
    """Each `consume` runs the next step of the script and returns the step's result."""

    def __init__(self) -> None:
        self.steps: list[Callable[[], list[Message]]] = []
        self.seeks: list[tuple[int, int]] = []
        self.callbacks: dict[str, Callback] = {}
        self.epoch = 1

    def subscribe(self, topics: list[str], **callbacks: Callback) -> None:
        self.callbacks = callbacks

    def consume(self, limit: int, timeout: float) -> list[Message]:
        return self.steps.pop(0)() if self.steps else []

    def seek(self, partition: KafkaPartition) -> None:
        self.seeks.append((partition.partition, partition.offset))

    def assign(self, partitions: list[KafkaPartition]) -> None:
        pass

    resume = pause = incremental_assign = assign

    def consumer_group_metadata(self) -> bytes:
        return b"CGMDv2:" + struct.pack("=i", self.epoch) + b"g\0m-1\0\x01"

    def tell(self, what: str, *partitions: TopicPartition) -> None:
        self.callbacks[what](self, [KafkaPartition(*each) for each in partitions])


class ScriptedHandles(ClientFactory):
    """Hands out the scripted consumer."""

    def __init__(self, consumer: ScriptedConsumer) -> None:
        super().__init__(Configuration("localhost:1", {}))
        self.scripted = consumer

    def consumer(
        self,
        defaults: Mapping[str, ConfigValue],
        rules: Mapping[str, ConfigValue],
        on_error: OnError | None = None,
    ) -> Consumer:
        return cast("Consumer", self.scripted)


class Listener:
    """Starts every partition at 100."""

    def __init__(self) -> None:
        self.failures: list[tuple[TopicPartition | None, PubSubError, bool]] = []

    def assigned(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        return dict.fromkeys(partitions, 100)

    def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        pass

    lost = revoked

    def failed(self, partition: TopicPartition | None, error: PubSubError, fatal: bool) -> None:
        self.failures.append((partition, error, fatal))


class World:
    """A reader that owns both partitions and has read once."""

    def __init__(self, protocol: str = "classic") -> None:
        self.consumer = ScriptedConsumer()
        handles = ScriptedHandles(self.consumer)
        self.reader = KafkaLogReader(handles, KafkaAdmin(handles), "g", "m", protocol)
        self.listener = Listener()
        self.reader.subscribe(["t"], self.listener)
        self.consumer.steps = [self.step("on_assign", P0, P1)]
        self.reader.read(10, 0)

    def step(
        self, what: str, *partitions: TopicPartition, then: Sequence[Message] = ()
    ) -> Callable[[], list[Message]]:
        def run() -> list[Message]:
            self.consumer.tell(what, *partitions)
            return list(then)

        return run


@pytest.fixture
def world() -> World:
    return World()


def _record(partition: TopicPartition, offset: int, error: KafkaError | None = None) -> Message:
    return Message(topic=partition.topic, partition=partition.partition, offset=offset, error=error)


def _handed_out(records: Sequence[StoredRecord]) -> list[tuple[int | None, int | None]]:
    return [(record.partition(), record.offset()) for record in records]


def test_records_in_hand_of_a_revoked_partition_are_not_handed_out(world: World) -> None:
    world.consumer.steps = [list, lambda: [_record(P0, 100)], world.step("on_revoke", P0)]
    assert world.reader.read(10, 1) == []
    assert world.consumer.seeks == []


def test_the_others_are_handed_out(world: World) -> None:
    world.consumer.steps = [
        list,
        lambda: [_record(P1, 100)],
        world.step("on_revoke", P0, then=[_record(P0, 100), _record(P1, 101)]),
    ]
    assert _handed_out(world.reader.read(10, 1)) == [(1, 100), (1, 101)]


def test_a_partition_that_came_back_starts_again_where_the_listener_said(world: World) -> None:
    def comes_back() -> list[Message]:
        world.consumer.tell("on_revoke", P0)
        world.consumer.tell("on_assign", P0)
        return [_record(P0, 131)]

    world.consumer.steps = [list, lambda: [_record(P0, 130)], comes_back]
    assert world.reader.read(10, 1) == []
    assert world.consumer.seeks == [(0, 100)]


def test_the_next_read_hands_out_everything_again(world: World) -> None:
    world.consumer.steps = [world.step("on_lost", P0), list, lambda: [_record(P1, 100)]]
    world.reader.read(10, 0)
    world.consumer.steps = [lambda: [_record(P1, 100)]]
    assert _handed_out(world.reader.read(10, 0)) == [(1, 100)]


def test_an_error_that_comes_with_the_assignment_is_told(world: World) -> None:
    """A record told only once: without it the partition would stand still without a word."""
    error = KafkaError(KafkaError._AUTO_OFFSET_RESET, "out of range")
    world.consumer.steps = [
        world.step("on_revoke", P0),
    ]
    world.reader.read(10, 0)
    world.consumer.steps = [world.step("on_assign", P0, then=[_record(P0, 100, error)])]
    assert world.reader.read(10, 0) == []
    assert [(partition, fatal) for partition, _, fatal in world.listener.failures] == [(P0, True)]


def _comes(world: World, *records: Message) -> Callable[[], list[Message]]:
    return world.step("on_assign", P0, then=records)


def test_records_that_follow_the_start_without_a_gap_are_handed_out_with_the_assignment(world: World) -> None:
    world.consumer.steps = [_comes(world, _record(P0, 100), _record(P0, 101))]
    assert _handed_out(world.reader.read(10, 0)) == [(0, 100), (0, 101)]
    assert world.consumer.seeks == []


def test_what_was_in_hand_is_not_handed_out_twice_if_the_partition_comes_back(world: World) -> None:
    def comes_back() -> list[Message]:
        world.consumer.tell("on_revoke", P0)
        world.consumer.tell("on_assign", P0)
        return [_record(P0, 100)]

    world.consumer.steps = [list, lambda: [_record(P0, 100)], comes_back]
    assert world.reader.read(10, 1) == []
    assert world.consumer.seeks == [(0, 100)]


def test_what_lies_behind_a_gap_is_read_again_from_there(world: World) -> None:
    world.consumer.steps = [_comes(world, _record(P0, 100), _record(P0, 103), _record(P0, 101))]
    assert _handed_out(world.reader.read(10, 0)) == [(0, 100)]
    assert world.consumer.seeks == [(0, 101)]


def test_an_error_behind_a_gap_is_told(world: World) -> None:
    error = KafkaError(KafkaError._AUTO_OFFSET_RESET, "out of range")
    world.consumer.steps = [_comes(world, _record(P0, 103), _record(P0, 104, error))]
    assert world.reader.read(10, 0) == []
    assert [(partition, fatal) for partition, _, fatal in world.listener.failures] == [(P0, True)]


def test_errors_are_taken_out_of_a_batch(world: World) -> None:
    error = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "denied")
    world.consumer.steps = [lambda: [_record(P0, 100), _record(P0, -1, error), _record(P0, 101)]]
    assert _handed_out(world.reader.read(10, 0)) == [(0, 100), (0, 101)]
    assert [failure[1].code for failure in world.listener.failures] == [7]


def test_the_end_of_a_log_is_no_trouble_and_no_record(world: World) -> None:
    end = KafkaError(KafkaError._PARTITION_EOF)
    world.consumer.steps = [
        lambda: [_record(P0, 100), _record(P0, 101, end)],
        lambda: [_record(P1, 100, end)],
    ]
    assert [record.offset() for record in world.reader.read(10, 0)] == [100]
    assert list(world.reader.read(10, 0)) == []
    assert world.listener.failures == []


def test_a_read_waits_on_behind_the_end_of_a_log(world: World) -> None:
    end = KafkaError(KafkaError._PARTITION_EOF)
    world.consumer.steps = [
        lambda: [_record(P0, 100, end)],
        lambda: [_record(P1, 100, end)],
        lambda: [_record(P0, 100)],
        lambda: [_record(P0, 101)],
    ]
    assert [record.offset() for record in world.reader.read(10, 60)] == [100, 101]


def test_a_membership_lasts_from_the_assignment_until_it_is_taken(world: World) -> None:
    first = world.reader.membership()
    assert first is not None
    world.consumer.steps = [world.step("on_revoke", P0, P1)]
    world.reader.read(10, 0)
    assert world.reader.membership() is None
    world.consumer.steps = [world.step("on_assign", P0)]
    world.reader.read(10, 0)
    assert world.reader.membership() == first
    world.consumer.steps = [world.step("on_lost", P0)]
    world.reader.read(10, 0)
    assert world.reader.membership() is None


@pytest.mark.parametrize("place", [b"\xff\xff\xff\xffg\0m\0\x01", b"\1\0\0\0g\0\0\x01", b"\1", b""])
def test_a_place_without_a_generation_or_a_member_is_none(world: World, place: bytes) -> None:
    """The broker would take the commit for a commit from outside the group, and not fence it."""
    world.consumer.consumer_group_metadata = lambda: b"CGMDv2:" + place  # type: ignore[method-assign]
    world.consumer.steps = [world.step("on_assign", P0)]
    world.reader.read(10, 0)
    assert world.reader.membership() is None


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> World:
    """A member under the protocol `consumer` that looks for a newer epoch at each read."""
    monkeypatch.setattr(reader, "_EPOCH_EVERY", 0.0)
    return World("consumer")


def test_a_newer_epoch_is_taken_over_between_two_reads(hasty: World) -> None:
    first = hasty.reader.membership()
    hasty.consumer.epoch = 2
    hasty.reader.read(10, 0)
    second = hasty.reader.membership()
    assert second != first
    for worse in (-1, 0, 1):  # librdkafka's words while it is out of the group, and of an earlier time
        hasty.consumer.epoch = worse
        hasty.reader.read(10, 0)
        assert hasty.reader.membership() == second


def test_an_epoch_that_rises_behind_a_revocation_is_not_taken_over_inside_it(hasty: World) -> None:
    first = hasty.reader.membership()
    inside: list[object] = []

    def revoked(partitions: Sequence[TopicPartition]) -> None:
        hasty.consumer.epoch = 2
        inside.append(hasty.reader.membership())

    hasty.listener.revoked = revoked  # type: ignore[method-assign]
    hasty.consumer.steps = [hasty.step("on_revoke", P0)]
    hasty.reader.read(10, 0)
    assert inside == [first]


def test_a_lost_membership_has_no_epoch_until_the_next_assignment(hasty: World) -> None:
    hasty.consumer.steps = [hasty.step("on_lost", P0, P1)]
    hasty.reader.read(10, 0)
    hasty.consumer.epoch = 2
    hasty.reader.read(10, 0)
    assert hasty.reader.membership() is None
