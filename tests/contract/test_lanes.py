"""Needs of lanes: a partition of their own choice, transient writers, and records that the broker dates."""

from __future__ import annotations

import time

import pytest

from kafka_pubsub.log.partitioner import partition_of
from tests.contract.world import Delivery, World, flush, until

#: The names in `StoredRecord.timestamp` for a publisher's time, and the broker's.
PUBLISHERS, BROKERS = 1, 2


@pytest.mark.parametrize("durable", [True, False])
def test_a_record_without_a_key_goes_to_the_partition_that_is_named(world: World, durable: bool) -> None:
    topic = world.topic(partitions=4)
    writer = world.writer(durable=durable)
    reports: list[Delivery] = []
    for number in range(20):
        writer.append(
            topic, b"v", None, None, lambda error, record: reports.append((error, record)), number % 4
        )
    flush(writer)
    assert [error for error, _ in reports] == [None] * 20
    assert sorted(record.partition() or 0 for _, record in reports) == sorted(list(range(4)) * 5)


def test_a_transient_writer_keeps_the_order_of_a_key_and_says_where_it_lies(world: World) -> None:
    topic = world.topic(partitions=3)
    writer = world.writer(durable=False)
    reports: list[Delivery] = []
    for number in range(500):
        writer.append(
            topic, b"%d" % number, b"k", [("n", b"1")], lambda error, record: reports.append((error, record))
        )
    flush(writer)
    assert [(error, record.offset()) for error, record in reports] == [
        (None, number) for number in range(500)
    ]
    member = world.member(world.name("group"), topic)
    until(lambda: len(member.records) == 500, member)
    assert member.values() == [b"%d" % number for number in range(500)]
    assert {record.partition() for record in member.records} == {partition_of(b"k", 3)}
    assert {tuple(record.headers() or ()) for record in member.records} == {(("n", b"1"),)}
    assert writer.relearn(topic) == 3


def test_a_topic_may_let_its_brokers_date_records_from_some_time_on(world: World) -> None:
    topic = world.topic()
    world.write(topic, [b"before"])
    world.backend.admin.update_topic(topic, {"message.timestamp.type": "LogAppendTime"})
    began = time.time()
    world.write(topic, [b"after"])
    stamped = world.topic(config={"message.timestamp.type": "LogAppendTime"})
    world.write(stamped, [b"at once"])
    member = world.member(world.name("group"), topic, stamped)
    until(lambda: len(member.records) == 3, member)
    found = {record.value(): record.timestamp() for record in member.records}
    assert found[b"before"][0] == PUBLISHERS
    for value in (b"after", b"at once"):
        kind, milliseconds = found[value]
        assert kind == BROKERS
        assert began - 1 <= milliseconds / 1000 <= time.time() + 1
