"""All lanes of a topic are a single table: Spark reads the messages that a subscription delivers."""

from __future__ import annotations

import re
import time
from concurrent.futures import TimeoutError as Late
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kafka_pubsub import FailedPrecondition, InvalidArgument, Message, NotFound, PubSub
from kafka_pubsub.local.pytest_plugin import RunningKafka

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Told = tuple[str, bytes, str | None, int, bool]


def told(rows: DataFrame) -> list[Told]:
    return sorted(
        (row.message_id, bytes(row.data), row.ordering_key, row.priority, row.durable)
        for row in rows.collect()
    )


def delivered(ps: PubSub, subscription: str, count: int) -> list[Told]:
    found: list[Told] = []

    def handle(message: Message) -> None:
        key = message.ordering_key
        found.append((message.message_id, message.data, key, message.priority, message.durable))
        message.ack()

    end = time.monotonic() + 60
    with ps.subscription(subscription).pull(handle) as stream:
        while len(found) < count and time.monotonic() < end:
            with suppress(Late):
                stream.result(timeout=0.2)
    return sorted(found)


def test_all_lanes_are_one_table_with_priority_and_class(
    spark: SparkSession, kafka: RunningKafka, name: str, tmp_path: Path
) -> None:
    from spark.reading.lanes import lane_messages
    from spark.reading.messages import messages

    with PubSub(kafka.bootstrap) as ps:
        topic = ps.create_topic(name, partitions=2, priorities=10, transient=True)
        # Its name begins as the topic's, and it is another topic.
        ps.create_topic(f"{name}.lanes").publish(b"other").result(30)
        ps.create_subscription(name, topic=name)
        lanes = [(None, None), (4, True), (9, True), (0, True), (4, False), (9, False)]
        for number in range(60):
            priority, durable = lanes[number % len(lanes)]
            body = b"%d" % number
            topic.publish(
                body,
                ordering_key=f"k{number % 3}" if number % 2 else None,
                priority=priority,
                durable=durable,
            )
        topic.flush(30)
        expected = delivered(ps, name, 60)
        assert len(expected) == 60
        assert told(lane_messages(spark, name, bootstrap=kafka.bootstrap)) == expected
        for where in (name, [name], re.compile(re.escape(name))):
            rows = messages(spark, where, bootstrap=kafka.bootstrap).select("message_id", "data").collect()
            assert sorted((row.message_id, bytes(row.data)) for row in rows) == [
                each[:2] for each in expected
            ]

        streamed: list[Told] = []

        def run() -> None:
            rows = lane_messages(spark, name, bootstrap=kafka.bootstrap, stream=True)
            query = (
                rows.writeStream.foreachBatch(lambda batch, _: streamed.extend(told(batch)))
                .option("checkpointLocation", str(tmp_path / "checkpoint"))
                .trigger(availableNow=True)
                .start()
            )
            assert query.awaitTermination(120)

        run()
        assert sorted(streamed) == expected
        # A lane that comes later is read from its beginning.
        topic.publish(b"later", priority=7).result(30)
        run()
        assert [each[1:] for each in streamed[60:]] == [(b"later", None, 7, True)]


def test_a_topic_without_lanes_is_durable_and_has_priority_zero(
    spark: SparkSession, kafka: RunningKafka, name: str
) -> None:
    from spark.reading.lanes import lane_messages

    with PubSub(kafka.bootstrap) as ps:
        ps.create_topic(name).publish(b"one").result(30)
    (row,) = lane_messages(spark, name, bootstrap=kafka.bootstrap).collect()
    assert (bytes(row.data), row.priority, row.durable) == (b"one", 0, True)


def test_a_topic_that_does_not_exist_is_named(spark: SparkSession, kafka: RunningKafka, name: str) -> None:
    from spark.reading.lanes import lane_messages

    with pytest.raises(NotFound, match=name):
        lane_messages(spark, name, bootstrap=kafka.bootstrap)


def test_rows_are_written_with_a_priority(
    spark: SparkSession, kafka: RunningKafka, name: str, tmp_path: Path
) -> None:
    from spark import lane_messages, messages, write, write_stream

    rows = spark.createDataFrame([("tea", "ann")], "data string, ordering_key string")
    with PubSub(kafka.bootstrap) as ps:
        topic = ps.create_topic(name, partitions=2, priorities=10)
        ps.create_topic(f"{name}.plain", partitions=1)
        with pytest.raises(
            FailedPrecondition, match=r"priority 7: no message of this priority was published"
        ):
            write(rows, name, query="q", batch=1, priority=7, bootstrap=kafka.bootstrap)
        with pytest.raises(InvalidArgument, match="has the priorities 0 to 9"):
            write(rows, name, query="q", batch=1, priority=10, bootstrap=kafka.bootstrap)
        topic.publish(b"first", priority=7).result(30)
    write(rows, name, query="q", batch=1, priority=7, bootstrap=kafka.bootstrap)
    write(rows, name, query="q", batch=2, bootstrap=kafka.bootstrap)
    write(rows, f"{name}.plain", query="q", batch=3, bootstrap=kafka.bootstrap)
    stream = messages(spark, f"{name}.plain", bootstrap=kafka.bootstrap, stream=True)
    write_stream(
        stream.select("data"),
        name,
        query="copy",
        checkpoint=tmp_path / "checkpoint",
        priority=7,
        bootstrap=kafka.bootstrap,
        available_now=True,
    ).awaitTermination()
    found = lane_messages(spark, name, bootstrap=kafka.bootstrap).collect()
    assert sorted((bytes(row.data), row.ordering_key, row.priority) for row in found if row.ordering_key) == [
        (b"tea", "ann", 4),
        (b"tea", "ann", 7),
    ]
    assert sorted((bytes(row.data), row.priority) for row in found if not row.ordering_key) == [
        (b"first", 7),
        (b"tea", 7),
    ]
