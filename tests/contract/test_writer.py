"""Writing: order, places, reports, and refusals."""

from __future__ import annotations

import random
import threading
from collections import defaultdict

import pytest

from kafka_pubsub.errors import PubSubError
from kafka_pubsub.log.partitioner import partition_of
from kafka_pubsub.model import StoredRecord
from tests.contract.world import PATIENCE, Delivery, World, flush, until


def test_reports_name_the_places_in_the_order_of_a_key(world: World) -> None:
    topic = world.topic(partitions=4)
    reports = world.write(topic, [b"%d" % number for number in range(100)], key=b"k")
    assert [error for error, _ in reports] == [None] * 100
    records = [record for _, record in reports]
    assert [record.offset() for record in records] == list(range(100))
    assert {(record.topic(), record.partition()) for record in records} == {(topic, partition_of(b"k", 4))}
    member = world.member(world.name("group"), topic)
    until(lambda: len(member.records) == 100, member)
    assert member.values() == [b"%d" % number for number in range(100)]


def test_every_key_keeps_its_order_among_many(world: World) -> None:
    topic = world.topic(partitions=3)
    writer = world.writer()
    for number in range(600):
        writer.append(topic, b"%d" % number, b"key-%d" % (number % 20), None, lambda error, record: None)
    flush(writer)
    member = world.member(world.name("group"), topic)
    until(lambda: len(member.records) == 600, member)
    by_key: dict[bytes | None, list[int]] = defaultdict(list)
    for record in member.records:
        by_key[record.key()].append(int(record.value() or b""))
    assert len(by_key) == 20
    assert all(numbers == sorted(numbers) for numbers in by_key.values())


def test_each_record_is_reported_once_and_only_inside_poll_or_flush(world: World) -> None:
    topic, writer = world.topic(), world.writer()
    threads: list[int] = []
    for _ in range(50):
        writer.append(topic, b"v", None, None, lambda error, record: threads.append(threading.get_ident()))
    assert threads == []
    flush(writer)
    assert threads == [threading.get_ident()] * 50
    writer.poll(0)
    assert len(threads) == 50


def test_poll_waits_for_reports(world: World) -> None:
    topic, writer = world.topic(), world.writer()
    reports: list[Delivery] = []
    writer.append(topic, b"v", None, None, lambda error, record: reports.append((error, record)))
    for _ in range(int(PATIENCE)):
        writer.poll(1)
        if reports:
            break
    assert [(error, record.offset()) for error, record in reports] == [(None, 0)]


def test_a_writer_without_records_has_nothing_to_flush(world: World) -> None:
    writer = world.writer()
    writer.poll(0)
    assert writer.flush(1) == 0


def test_a_report_may_append(world: World) -> None:
    topic, writer = world.topic(), world.writer()
    offsets: list[int | None] = []

    def again(error: object, record: StoredRecord) -> None:
        offsets.append(record.offset())
        if len(offsets) < 5:
            writer.append(topic, b"v", None, None, again)

    writer.append(topic, b"v", None, None, again)
    until(lambda: writer.flush(1) == 0 and len(offsets) == 5)
    assert offsets == [0, 1, 2, 3, 4]


def test_many_threads_write_with_one_writer(world: World) -> None:
    topic, writer = world.topic(partitions=2), world.writer()
    reports: list[Delivery] = []

    def write(name: int) -> None:
        for number in range(100):
            writer.append(
                topic,
                b"%d" % number,
                b"t%d" % name,
                None,
                lambda error, record: reports.append((error, record)),
            )

    threads = [threading.Thread(target=write, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    flush(writer)
    assert [error for error, _ in reports] == [None] * 400
    for name in range(4):
        offsets = [record.offset() for _, record in reports if record.key() == b"t%d" % name]
        assert offsets == sorted(offsets, key=lambda offset: offset or 0)


def test_keys_go_where_every_kafka_producer_puts_them(world: World) -> None:
    topic, writer = world.topic(partitions=7), world.writer()
    drawn = random.Random(3)
    keys = [b"", b"\x00", b"\xff\xfe"] + [drawn.randbytes(drawn.randrange(1, 40)) for _ in range(2000)]
    places: list[tuple[bytes | None, int | None]] = []
    for key in keys:
        writer.append(
            topic, b"v", key, None, lambda error, record: places.append((record.key(), record.partition()))
        )
    flush(writer)
    assert len(places) == len(keys)
    wrong = [(key, found) for key, found in places if key is None or found != partition_of(key, 7)]
    assert wrong == []


@pytest.mark.slow
def test_a_topic_that_is_not_there_is_explained(world: World) -> None:
    error = _refusal(world, world.name("absent"), b"v")
    assert error.code == 5


def test_a_message_above_the_topics_limit_is_explained_and_not_stored(world: World) -> None:
    topic = world.topic(config={"max.message.bytes": "10000"})
    error = _refusal(world, topic, random.Random(1).randbytes(20_000))
    assert error.message
    assert world.backend.admin.last_stable_offsets(topic) == {0: 0}
    (report,) = world.write(topic, [b"small"])
    assert (report[0], report[1].offset()) == (None, 0)


def _refusal(world: World, topic: str, value: bytes) -> PubSubError:
    """The explained error of a record that must not be stored, wherever it is found: at append or in the report."""
    writer = world.writer()
    errors: list[object] = []
    try:
        writer.append(topic, value, None, None, lambda error, record: errors.append(error))
    except PubSubError as error:
        return error
    flush(writer)
    (reported,) = errors
    assert reported is not None
    return writer.explain(reported)
