"""Spark's own form of reading: `source_options` and `as_messages` give what `messages` gives."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kafka_pubsub import PubSub
from kafka_pubsub.errors import InvalidArgument
from kafka_pubsub.local.pytest_plugin import RunningKafka

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_it_gives_the_same_rows_as_messages(
    spark: SparkSession, kafka: RunningKafka, name: str, tmp_path: Path
) -> None:
    from spark import as_messages, messages, source_options

    with PubSub(kafka.bootstrap) as ps:
        topic = ps.create_topic(name, partitions=2, priorities=2)
        for number in range(10):
            topic.publish(
                b"%d" % number,
                ordering_key=f"k{number % 3}",
                attributes={"n": str(number)},
                priority=number % 2,
            ).result(30)
    shown = messages(spark, name, bootstrap=kafka.bootstrap)
    options = source_options(name, bootstrap=kafka.bootstrap)
    native = spark.read.format("kafka").options(**options).load().transform(as_messages)
    assert native.columns == shown.columns
    place = ("topic", "partition", "offset")
    rows = shown.orderBy(*place).collect()
    assert native.orderBy(*place).collect() == rows
    assert len(rows) == 10

    few = source_options(name, bootstrap=kafka.bootstrap, max_per_batch=3)
    stream = spark.readStream.format("kafka").options(**few).load().transform(as_messages, retry_topics=False)
    writer = stream.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.trigger(availableNow=True).start(str(tmp_path / "kept"), format="parquet")
    query.awaitTermination()
    assert spark.read.parquet(str(tmp_path / "kept")).orderBy(*place).collect() == rows
    assert len(query.recentProgress) > 2, "of at most 3 messages"


def test_offsets_and_times_bound_it(spark: SparkSession, kafka: RunningKafka, name: str) -> None:
    from spark import as_messages, messages, source_options

    with PubSub(kafka.bootstrap) as ps:
        topic = ps.create_topic(name, partitions=1)
        for number in range(4):
            topic.publish(b"%d" % number).result(30)
    options = source_options(
        name, bootstrap=kafka.bootstrap, starting={name: {0: 1}}, ending={name: {0: 3}}, lost="skip"
    )
    found = spark.read.format("kafka").options(**options).load().transform(as_messages)
    assert sorted(bytes(row.data) for row in found.collect()) == [b"1", b"2"]
    with pytest.raises(
        InvalidArgument, match="starting must be 'earliest', 'latest', a time or offsets, not 5"
    ):
        source_options(name, bootstrap=kafka.bootstrap, starting=5)  # type: ignore[arg-type]
    early, late = datetime(2026, 1, 14, tzinfo=UTC), datetime(2026, 1, 15, tzinfo=UTC)
    with pytest.raises(InvalidArgument, match=r"starting \(2026-01-15.*is later than ending \(2026-01-14"):
        source_options(name, bootstrap=kafka.bootstrap, starting=late, ending=early)
    for offsets, said in (
        ({f"{name}.other": {0: 1}}, f"topic '{name}.other' isn't read; offsets are for {name}"),
        ({name: {1: 0}}, f"{name} has no partition 1; it has 1, from 0 on"),
    ):
        with pytest.raises(InvalidArgument, match=f"starting: {said}"):
            messages(spark, name, bootstrap=kafka.bootstrap, starting=offsets)
        with pytest.raises(InvalidArgument, match=f"ending: {said}"):
            messages(spark, name, bootstrap=kafka.bootstrap, ending=offsets)
    with pytest.raises(InvalidArgument, match="as_messages: the records have no column headers"):
        as_messages(spark.range(1).selectExpr("cast('a' AS binary) AS value"))
