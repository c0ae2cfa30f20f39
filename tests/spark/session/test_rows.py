"""A record becomes a row: ids, attributes, origins. Strange records stay messages; commands of ours do not."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from kafka_pubsub.subscribe.formats.record import NO_MESSAGES, Death, RetryInfo, Why, dead_headers, encode

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

SCHEMA = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int, "
    "headers array<struct<key:string,value:binary>>"
)
NOON = datetime(2026, 1, 14, 12, tzinfo=UTC)
Headers = Sequence[tuple[str, bytes | None]] | None


def record(
    value: bytes | None = b"x",
    key: bytes | None = b"k",
    topic: str = "orders",
    offset: int = 7,
    headers: Headers = None,
    time: datetime = NOON,
) -> tuple[Any, ...]:
    return (key, value, topic, 1, offset, time, 0, None if headers is None else list(headers))


def read(spark: SparkSession, *records: tuple[Any, ...]) -> list[Row]:
    from spark.reading.rows import rows

    return rows(spark.createDataFrame(list(records), SCHEMA)).orderBy("topic", "offset").collect()


def test_a_plain_record(spark: SparkSession) -> None:
    from spark.reading.rows import COLUMNS

    (row,) = read(spark, record(b"\x00\xff", b"user-1", headers=[("kind", b"created")]))
    assert tuple(row.asDict()) == COLUMNS
    assert (bytes(row.data), row.ordering_key, row.attributes) == (b"\x00\xff", "user-1", {"kind": "created"})
    assert (row.message_id, row.topic, row.partition, row.offset) == ("orders:1:7", "orders", 1, 7)
    assert (row.origin.topic, row.origin.partition, row.origin.offset) == ("orders", 1, 7)
    assert bytes(row.key) == b"user-1"


def test_what_may_be_missing(spark: SparkSession) -> None:
    no_key, empty, tombstone = read(
        spark,
        record(key=None, offset=1, headers=[]),
        record(key=b"", value=b"", offset=2),
        record(value=None, offset=3, time=datetime.fromtimestamp(-0.001, UTC)),
    )
    assert no_key.ordering_key is None
    assert no_key.attributes == {}
    assert (empty.ordering_key, bytes(empty.data), empty.attributes) == ("", b"", {})
    assert tombstone.data is None
    assert tombstone.publish_time.timestamp() == 0


def test_an_attribute_twice_counts_as_its_last_value_and_headers_keep_all(spark: SparkSession) -> None:
    headers: Headers = [("a", b"1"), ("b", None), ("a", b"2"), ("ps-x", b"ours"), ("a", b"3")]
    (row,) = read(spark, record(headers=headers))
    assert row.attributes == {"a": "3", "b": ""}
    assert [(h.key, None if h.value is None else bytes(h.value)) for h in row.headers] == list(headers or ())


def test_headers_that_are_all_theirs(spark: SparkSession) -> None:
    several: Headers = [("a", b"1"), ("xps-b", b""), ("ps", b"3")]
    first, second, third = read(
        spark,
        record(headers=several, offset=1),
        # The sign by which plain texts are told from values that are missing may stand in them.
        record(headers=[("a", b"\x1a"), ("b", None)], offset=2),
        record(headers=[("a\nps-b", b"1"), ("b", None)], offset=3),
    )
    assert first.attributes == {"a": "1", "xps-b": "", "ps": "3"}
    assert second.attributes == {"a": "\x1a", "b": ""}
    assert third.attributes == {"a\nps-b": "1", "b": ""}
    assert [row.message_id for row in (first, second, third)] == ["orders:1:1", "orders:1:2", "orders:1:3"]


def test_bytes_that_are_no_text_stay_in_key_and_headers(spark: SparkSession) -> None:
    first, second = read(
        spark,
        record(key=b"\xff\x01", offset=1, headers=[("h", b"\xfe")]),
        record(key=b"\xff\x02", offset=2),
    )
    assert (bytes(first.key), bytes(second.key)) == (b"\xff\x01", b"\xff\x02")
    assert bytes(first.headers[0].value) == b"\xfe"


def test_an_id_of_ours_names_the_message(spark: SparkSession) -> None:
    (row,) = read(spark, record(headers=[("ps-id", None), ("ps-id", b"q:0:1"), ("ps-id", b"other")]))
    assert row.message_id == "q:0:1"
    assert row.attributes == {}


def retry(info: RetryInfo, **more: Any) -> tuple[Any, ...]:
    return record(topic="orders.sub.billing.retry", headers=[("a", b"1"), ("ps-retry", encode(info))], **more)


def test_a_record_of_a_retry_topic_is_the_message_that_was_published(spark: SparkSession) -> None:
    (row,) = read(spark, retry(RetryInfo("id", 3, 2**40 + 5, attempt=2, due=2**62, error="ä")))
    assert (row.origin.topic, row.origin.partition, row.origin.offset) == ("orders", 3, 2**40 + 5)
    assert row.message_id == f"orders:3:{2**40 + 5}"
    assert (row.topic, row.partition, row.offset) == ("orders.sub.billing.retry", 1, 7)
    assert row.attributes == {"a": "1"}


def test_commands_in_a_retry_topic_are_no_messages_and_broken_headers_are(spark: SparkSession) -> None:
    header = encode(RetryInfo("id", 3, 5, why=Why.RELEASE))
    rows = read(
        spark,
        *(retry(RetryInfo("id", 3, 5, why=why), offset=10 + why) for why in NO_MESSAGES),
        record(topic="orders.sub.billing.retry", headers=[("ps-retry", header[:-1] + b"!")], offset=2),
        record(topic="orders.sub.billing.retry", headers=[("ps-retry", b"")], offset=3),
        # A stranger's header in a home topic means nothing: a subscription delivers the message.
        record(topic="orders", headers=[("ps-retry", header)], offset=4),
    )
    assert [(row.topic, row.offset, row.origin.offset) for row in rows] == [
        ("orders", 4, 4),
        ("orders.sub.billing.retry", 2, 2),
        ("orders.sub.billing.retry", 3, 3),
    ]


def test_dead_letters_and_replays_say_where_they_come_from(spark: SparkSession) -> None:
    death = Death("orders", "billing", "exhausted", time=1)
    dead = dead_headers([("a", b"1"), ("ps-replayed", b"old:0:1")], RetryInfo("id", 3, 5), death)
    dead_letter, replay, neither = read(
        spark,
        record(topic="dead", headers=dead, offset=1),
        record(headers=[("ps-replayed", b"a:b:2:9")], offset=2),
        record(headers=[("ps-replayed", b"nonsense"), ("ps-dead-offset", b"x")], offset=3),
    )
    assert (dead_letter.origin.topic, dead_letter.origin.partition, dead_letter.origin.offset) == (
        "orders",
        3,
        5,
    )
    assert dead_letter.message_id == "orders:3:5"
    assert (replay.origin.topic, replay.origin.partition, replay.origin.offset) == ("a:b", 2, 9)
    assert (neither.origin.topic, neither.origin.offset) == ("orders", 3)


def test_a_message_of_a_causal_topic_has_its_publishers_time(spark: SparkSession) -> None:
    causal, damaged, plain = read(
        spark,
        record(headers=[("ps-published", b"1700000000123")], offset=1),
        record(headers=[("ps-published", b"yesterday")], offset=2),
        record(offset=3),
    )
    assert causal.publish_time == datetime.fromtimestamp(1700000000.123, UTC).replace(tzinfo=None)
    assert damaged.publish_time == plain.publish_time


def test_all_of_a_row_is_one_step(spark: SparkSession) -> None:
    from pyspark.sql import functions as F

    from spark.reading.rows import published, rows

    # Each step copies every body, and a topic that may be null costs one more where it names a directory.
    records = spark.createDataFrame([record()], SCHEMA)
    found = rows(records, retry_topics=False, beside={"date": F.to_date(published())})
    plan = found._jdf.queryExecution().optimizedPlan().toString()
    assert plan.count("Project") == 1, plan
    assert not found.schema["topic"].nullable
    assert [str(row.date) for row in found.collect()] == ["2026-01-14"]
