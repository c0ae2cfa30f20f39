"""Spark writes messages that wait: the records of a publisher's `deliver_at`, brought home once under Spark's ids."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kafka_pubsub import DelayRouter, FailedPrecondition, InvalidArgument, Message, PubSub
from tests.support import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

INGEST = "_kafka_pubsub.delay.in"
ROWS = "data string, ordering_key string, attributes map<string,string>, due timestamp"


def test_rows_arrive_when_they_are_due_once_with_what_they_have(
    spark: SparkSession, broker: str, tmp_path: Path
) -> None:
    from pyspark.sql import functions as F

    from spark import messages, write, write_stream

    now = datetime.now(UTC)
    later, past = now + timedelta(seconds=45), now - timedelta(hours=1)
    rows = [
        ("b", "ann", {"n": "2"}, later + timedelta(milliseconds=300)),
        ("a", "ann", {"n": "1"}, later),
        ("free", None, None, later),
        ("past", "ann", None, past),
        ("no time", "bob", None, None),
    ]
    frame = spark.createDataFrame(rows, ROWS)
    came: list[tuple[float, Message]] = []

    def handle(message: Message) -> None:
        came.append((time.time(), message))
        message.ack()

    write_all = partial(write, frame, "home", query="q", batch=1, deliver_at=F.col("due"), bootstrap=broker)

    with PubSub(broker) as ps:
        topic = ps.create_topic("home", partitions=2, priorities=10)
        ps.create_topic("source", partitions=1).publish(b"streamed").result(30)
        sub = ps.create_subscription("all", "home", message_ordering=True)
        with pytest.raises(FailedPrecondition, match="start `kafka-pubsub service router`"):
            write_all()
        with DelayRouter(ps, partitions=2), sub.pull(handle):
            topic.publish(b"lane", priority=7, delay=0.1).result(30)
            write_all()
            # Spark writes a row again after a failure; both come home under one id.
            write_all()
            write(
                frame.where("data = 'b'"),
                "home",
                query="q",
                batch=2,
                deliver_at=later,
                priority=7,
                bootstrap=broker,
            )
            write_stream(
                messages(spark, "source", bootstrap=broker, stream=True).select("data"),
                "home",
                query="s",
                checkpoint=tmp_path / "checkpoint",
                deliver_at=F.lit(later),
                bootstrap=broker,
                available_now=True,
            ).awaitTermination(120)
            until(lambda: len(came) == 13, "thirteen messages", 120)
            assert list(ps.delays.waiting()) == []
    check(came, rows, later.timestamp())


def check(came: list[tuple[float, Message]], rows: Sequence[Any], later: float) -> None:
    """Each row came twice under one id, with its key and attributes, and not before it was due."""
    by_id: dict[str, list[tuple[float, Message]]] = {}
    for at, message in came:
        by_id.setdefault(message.message_id, []).append((at, message))
    twice = {each[0][1].data: each for told, each in by_id.items() if told.startswith("q:1:")}
    assert {data: len(each) for data, each in twice.items()} == {row[0].encode(): 2 for row in rows}
    for data, key, attributes, due in rows:
        for at, message in twice[data.encode()]:
            assert (message.ordering_key, message.attributes) == (key, attributes or {})
            assert due is None or at >= due.timestamp(), f"{data} is early"
    first = [each.data for _, each in came if each.message_id.startswith("q:1:")]
    assert [data for data in first if data in (b"a", b"b")] == [b"a", b"a", b"b", b"b"]
    (lane,) = (each for told, each in by_id.items() if told.startswith("q:2:"))
    assert lane[0][1].priority == 7
    (streamed,) = (each for told, each in by_id.items() if told.startswith("s-"))
    for (at, message), body in ((lane[0], b"b"), (streamed[0], b"streamed")):
        assert at >= later
        assert message.data == body


def test_the_record_is_the_one_that_a_publisher_writes(spark: SparkSession, broker: str) -> None:
    from spark import write
    from spark.base.connection import Connection
    from spark.reading.messages import raw_records

    due = datetime.now(UTC) + timedelta(days=40, microseconds=1)
    with PubSub(broker) as ps:
        topic = ps.create_topic("home", partitions=1)
        for key in ("ann", None):
            topic.publish(b"x", ordering_key=key, attributes={"a": "b"}, deliver_at=due).result(30)
    rows = [("x", key, {"a": "b"}, due) for key in ("ann", None)]
    write(spark.createDataFrame(rows, ROWS), "home", query="q", batch=1, deliver_at=due, bootstrap=broker)
    found = raw_records(spark, INGEST, Connection(broker)).orderBy("timestamp").collect()
    records = [
        (row.key, row.value, [tuple(each) for each in row.headers if each.key != "ps-id"]) for row in found
    ]
    assert len(records) == 4
    for home_key in (b"home\0ann", None):
        ours, spark_s = ([each[1:] for each in records if each[0] == home_key][at] for at in (0, 1))
        assert ours == spark_s
        assert [name for name, _ in ours[1]] == ["ps-delay", "a"]


@pytest.mark.parametrize(
    ("deliver_at", "said"),
    [
        (datetime(2030, 1, 1), "has no time zone: use datetime.now(UTC)"),  # noqa: DTZ001
        ("2030-01-01", "must be a datetime or a column (col('remind_at')), not str"),
        ("data", "deliver_at is string, not timestamp: cast it"),
        ("nowhere", "isn't a column of the DataFrame"),
    ],
)
def test_what_is_no_time_is_refused(spark: SparkSession, deliver_at: Any, said: str) -> None:
    from pyspark.sql import functions as F

    from spark import write

    given = F.col(deliver_at) if deliver_at in ("data", "nowhere") else deliver_at
    frame = spark.createDataFrame([("x", None, None, None)], ROWS)
    with pytest.raises(InvalidArgument, match=re.escape(said)):
        write(frame, "home", query="q", batch=1, deliver_at=given, bootstrap="localhost:1")


def test_longer_than_the_tiers_is_refused_and_nothing_is_written(spark: SparkSession, broker: str) -> None:
    from pyspark.sql import functions as F

    from spark import messages, write

    with PubSub(broker) as ps:
        ps.create_topic("home", partitions=1).publish(b"first", delay=0.01).result(30)
    frame = spark.createDataFrame([("x", None, None, datetime(2060, 1, 1, tzinfo=UTC))], ROWS)
    with pytest.raises(Exception, match=r"deliver_at: 2060-01-01 .* tiers of this cluster can't hold"):
        write(frame, "home", query="q", batch=1, deliver_at=F.col("due"), bootstrap=broker)
    assert messages(spark, INGEST, bootstrap=broker).where("data = binary('x')").count() == 0


def test_a_topic_id_is_written_as_the_catalog_has_it() -> None:
    from spark.writing.delayed import as_clients_say

    assert as_clients_say("Zu61qSjPRWWAl55w_J92y-") == "Zu61qSjPRWWAl55w/J92y+"
