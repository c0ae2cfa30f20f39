"""A topic read by Spark has the messages that a subscription delivers; Spark's messages are read like any other."""

from __future__ import annotations

import random
import re
import time
from concurrent.futures import TimeoutError as Late
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, Producer

from kafka_pubsub import InvalidArgument, Message, NotFound, PubSub
from kafka_pubsub.local.pytest_plugin import RunningKafka
from kafka_pubsub.log.partitioner import partition_of
from tests.spark.session.support import LONG

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Told = tuple[str, bytes, bytes | None, tuple[tuple[str, str], ...], int, str, int, int]


def as_told(row: Any) -> Told:
    return (
        row.message_id,
        bytes(row.data or b""),
        None if row.key is None else bytes(row.key),
        tuple(sorted(row.attributes.items())),
        round(row.publish_time.timestamp() * 1000),
        row.topic,
        row.partition,
        row.offset,
    )


def delivered(subscription: Any, count: int) -> list[Told]:
    found: list[Told] = []

    def handle(message: Message) -> None:
        found.append(as_told(message))
        message.ack()

    with subscription.pull(handle) as stream:
        deadline = time.monotonic() + 60
        while len(found) < count and time.monotonic() < deadline:
            with suppress(Late):
                stream.result(timeout=0.2)
        # A message that shouldn't come has this long to come.
        with suppress(Late):
            stream.result(timeout=1)
    return found


def write_all_kinds(bootstrap: str, topic: str) -> None:
    """Records that other clients may write: aborted, null, repeated, binary."""
    plain = Producer({"bootstrap.servers": bootstrap})
    plain.produce(topic, value=None, key=b"tombstone")
    plain.produce(topic, value=b"", key=b"")
    plain.produce(topic, value=b"\xff", key=None, headers=[("a", b"1"), ("a", b"2"), ("n", None)])
    plain.produce(topic, value=b"id", key=b"k", headers=[("ps-id", b"given:1"), ("ps-other", b"x")])
    plain.flush(20)
    writer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"tx-{topic}"})
    writer.init_transactions(20)
    for value, stored in ((b"aborted", False), (b"committed", True)):
        writer.begin_transaction()
        for number in range(5):
            writer.produce(topic, value=value, key=f"t{number}".encode())
        writer.flush(20)
        writer.commit_transaction(20) if stored else writer.abort_transaction(20)


def test_rows_are_exactly_what_a_subscription_delivers(
    spark: SparkSession, kafka: RunningKafka, name: str, tmp_path: Path
) -> None:
    from spark.reading.messages import messages

    with PubSub(kafka.bootstrap) as ps:
        topic = ps.create_topic(name, partitions=3)
        subscription = ps.create_subscription(f"s-{name}", topic=name, message_ordering=True)
        for number in range(50):
            topic.publish(f"m{number}".encode(), ordering_key=f"k{number % 7}", attributes={"n": str(number)})
        topic.flush(20)
        write_all_kinds(kafka.bootstrap, name)
        batch = messages(spark, name, bootstrap=kafka.bootstrap)
        found = [as_told(row) for row in batch.collect()]
        assert len(found) == 59
        assert sorted(map(repr, found)) == sorted(map(repr, delivered(subscription, 59)))
        stream = messages(spark, name, bootstrap=kafka.bootstrap, stream=True, max_per_batch=20)
        assert sorted(map(repr, drained(stream, tmp_path))) == sorted(map(repr, found))


def drained(stream: DataFrame, tmp_path: Path) -> list[Told]:
    found: list[Told] = []

    def take(batch: DataFrame, _: int) -> None:
        found.extend(as_told(row) for row in batch.collect())

    query = (
        stream.writeStream.foreachBatch(take)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    return found


def test_a_time_offsets_and_a_pattern(spark: SparkSession, kafka: RunningKafka, name: str) -> None:
    from spark.reading.messages import messages

    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    with PubSub(kafka.bootstrap) as ps:
        for suffix in ("a", "ab", "b"):
            ps.create_topic(f"{name}.{suffix}", partitions=2, retention=LONG)
    for number in range(10):
        producer.produce(f"{name}.a", str(number), partition=number % 2, timestamp=1_700_000_000_000 + number)
    producer.produce(f"{name}.b", b"b")
    producer.flush(20)

    def bodies(topic: Any, **more: Any) -> list[str]:
        found = messages(spark, topic, bootstrap=kafka.bootstrap, **more).collect()
        return sorted(bytes(row.data).decode() for row in found)

    since = datetime.fromtimestamp(1_700_000_000.007, UTC)
    assert bodies(f"{name}.a", starting=since) == ["7", "8", "9"]
    assert bodies(f"{name}.a", starting={f"{name}.a": {1: 3}}) == ["0", "2", "4", "6", "7", "8", "9"]
    assert bodies(f"{name}.a", ending={f"{name}.a": {0: 1, 1: 0}}) == ["0"]
    assert bodies(re.compile(re.escape(name) + r"\.(a|b)"))[-1] == "b"
    assert bodies([f"{name}.a", f"{name}.b"])[-1] == "b"
    assert bodies(f"{name}.a", ending=since) == ["0", "1", "2", "3", "4", "5", "6"]
    producer.produce(f"{name}.ab", b"another")
    producer.flush(20)
    assert bodies(re.compile(re.escape(name) + r"\.a")) == [str(number) for number in range(10)]
    # Flags count, and a pattern for everything leaves out kafka_pubsub's own topics.
    assert bodies(re.compile(re.escape(name.upper()) + r"\.B  # the second", re.IGNORECASE | re.VERBOSE)) == [
        "b"
    ]
    everything = messages(spark, re.compile(r".*"), bootstrap=kafka.bootstrap, lost="skip")
    topics = {row.topic for row in everything.select("topic").distinct().collect()}
    assert {f"{name}.a", f"{name}.b"} <= topics
    assert not any(each.startswith("_kafka_pubsub.") or each.endswith(".retry") for each in topics)
    many = messages(spark, f"{name}.a", bootstrap=kafka.bootstrap, options={"minPartitions": "6"})
    assert many.rdd.getNumPartitions() >= 6


def test_options_of_spark_s_source_go_through(
    spark: SparkSession, kafka: RunningKafka, name: str, tmp_path: Path
) -> None:
    from spark.reading.messages import messages

    with PubSub(kafka.bootstrap) as ps:
        ps.create_topic(name, partitions=1)
        for number in range(4):
            ps.topic(name).publish(b"%d" % number)
        ps.topic(name).flush(30)
    options = {"maxOffsetsPerTrigger": "1", "kafka.max.poll.records": "2", "minPartitions": "1"}
    stream = messages(spark, name, bootstrap=kafka.bootstrap, stream=True, options=options)
    sizes: list[int] = []
    query = (
        stream.writeStream.foreachBatch(lambda batch, _: sizes.append(batch.count()))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    assert sizes == [1, 1, 1, 1]
    # Java's client is handed the setting: it says what is wrong with this one.
    wrong = messages(spark, name, bootstrap=kafka.bootstrap, options={"kafka.max.poll.records": "many"})
    with pytest.raises(Exception, match=r"max\.poll\.records"):
        wrong.count()


def test_a_batch_doesn_t_wait_for_more_records(
    spark: SparkSession, kafka: RunningKafka, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from spark.reading.messages import messages

    told: dict[str, str] = {}
    reader = type(spark.read)
    options = reader.options

    def spied(self: Any, **given: Any) -> Any:
        told.update(given)
        return options(self, **given)

    with PubSub(kafka.bootstrap) as ps:
        ps.create_topic(name, partitions=1)
    monkeypatch.setattr(reader, "options", spied)
    messages(spark, name, bootstrap=kafka.bootstrap)
    assert (told["kafka.fetch.max.wait.ms"], told["kafka.max.poll.records"]) == ("50", "10000")
    # What the user says counts.
    messages(spark, name, bootstrap=kafka.bootstrap, config={"fetch.max.wait.ms": "7"})
    assert told["kafka.fetch.max.wait.ms"] == "7"


def test_the_catalog_is_read_in_one_job(spark: SparkSession, kafka: RunningKafka, name: str) -> None:
    from spark.base.connection import Connection
    from spark.reading.catalog import subscriptions_of

    with PubSub(kafka.bootstrap) as ps:
        ps.create_topic(name, partitions=1)
        ps.create_subscription(f"{name}-sub", topic=name)
    tracker = spark.sparkContext.statusTracker()
    before = set(tracker.getJobIdsForGroup())
    found = subscriptions_of(spark, Connection(kafka.bootstrap), name, pytest.fail)
    assert [each.name for each in found] == [f"{name}-sub"]
    assert len(set(tracker.getJobIdsForGroup()) - before) == 1


def test_what_can_t_be_read_is_said_by_name(spark: SparkSession, kafka: RunningKafka, name: str) -> None:
    from spark.reading.messages import messages

    with pytest.raises(NotFound, match=name):
        messages(spark, name, bootstrap=kafka.bootstrap)
    with pytest.raises(InvalidArgument, match=r"isolation\.level"):
        messages(spark, name, bootstrap=kafka.bootstrap, config={"isolation.level": "read_uncommitted"})
    for setting in ("partitioner.class", "partitioner.ignore.keys"):
        with pytest.raises(InvalidArgument, match=rf"{setting}: a key must lie where every client"):
            messages(spark, name, bootstrap=kafka.bootstrap, config={setting: "true"})
    for option in ("startingOffsets", "FailOnDataLoss"):
        with pytest.raises(InvalidArgument, match=f"options {option}: this package sets it"):
            messages(spark, "_schemas", bootstrap=kafka.bootstrap, options={option: "x"})
    fixed = {
        "kafka.group.id": "x",
        "Kafka.Isolation.Level": "read_uncommitted",
        "kafka.bootstrap.servers": "x",
    }
    for option, value in fixed.items():
        with pytest.raises(InvalidArgument, match=f"config {option[6:].lower()}.*leave it out"):
            messages(spark, "_schemas", bootstrap=kafka.bootstrap, options={option: value})
    with pytest.raises(InvalidArgument, match="maxOffsetsPerTrigger: max_per_batch says the same"):
        messages(
            spark,
            "_schemas",
            bootstrap=kafka.bootstrap,
            stream=True,
            max_per_batch=1,
            options={"maxOffsetsPerTrigger": "1"},
        )
    with pytest.raises(InvalidArgument, match="ending: a stream has no end"):
        messages(spark, "_schemas", bootstrap=kafka.bootstrap, stream=True, ending=datetime.now(UTC))
    with PubSub(kafka.bootstrap) as ps:
        ps.create_topic(name, partitions=1)
    with pytest.raises(InvalidArgument, match="ending must be 'latest', a time or offsets, not 'earliest'"):
        messages(spark, name, bootstrap=kafka.bootstrap, ending="earliest")
    with pytest.raises(InvalidArgument, match="ending: give the time with its zone"):
        messages(spark, name, bootstrap=kafka.bootstrap, ending=datetime.fromisoformat("2026-01-14"))
    with pytest.raises(InvalidArgument, match="starting"):
        messages(spark, "_schemas", bootstrap=kafka.bootstrap, starting="yesterday")


def test_keys_lie_where_the_client_puts_them(spark: SparkSession, kafka: RunningKafka, name: str) -> None:
    """The promise that a Spark job and a publisher never split a key: 100,000 random keys, compared."""
    from spark.reading.messages import messages
    from spark.writing.outgoing import write

    dice = random.Random(5)
    keys = sorted(
        {
            "".join(
                chr(dice.choice((65, 228, 0x4E00, 0x1F600)) + dice.randrange(20))
                for _ in range(dice.randint(1, 12))
            )
            + str(n)
            for n in range(100_000)
        }
    )
    with PubSub(kafka.bootstrap) as ps:
        ps.create_topic(name, partitions=13)
    frame = spark.createDataFrame([(key,) for key in keys], "ordering_key string").selectExpr(
        "ordering_key", "cast('' as binary) AS data"
    )
    write(frame, name, query="keys", batch=1, bootstrap=kafka.bootstrap)
    found = messages(spark, name, bootstrap=kafka.bootstrap).select("key", "partition").toArrow().to_pydict()
    assert sorted(found["key"]) == sorted(key.encode() for key in keys)
    wrong = [
        key
        for key, partition in zip(found["key"], found["partition"], strict=True)
        if partition != partition_of(key, 13)
    ]
    assert wrong == []


def test_a_subscriber_reads_what_spark_wrote_in_the_order_asked_for(
    spark: SparkSession, kafka: RunningKafka, name: str
) -> None:
    from spark.writing.outgoing import write

    rows: list[tuple[Any, ...]] = [(f"{n:04}", f"k{n % 5}", {"n": str(n)}) for n in range(500)]
    rows += [("free", None, {"n": "-1"}), ("bare", None, None)]
    random.Random(1).shuffle(rows)
    frame = spark.createDataFrame(rows, "data string, ordering_key string, attributes map<string,string>")
    with PubSub(kafka.bootstrap) as ps:
        ps.create_topic(name, partitions=3)
        subscription = ps.create_subscription(f"s-{name}", topic=name, message_ordering=True)
        write(frame, name, query="q", batch=3, order_by=["data"], bootstrap=kafka.bootstrap)
        found = delivered(subscription, 502)
    by_key: dict[bytes | None, list[bytes]] = {}
    for told in found:
        by_key.setdefault(told[2], []).append(told[1])
    assert sorted(by_key.pop(None)) == [b"bare", b"free"]
    assert len(by_key) == 5
    assert all(bodies == sorted(bodies) and len(bodies) == 100 for bodies in by_key.values())
    assert all(told[0].startswith("q:3:") for told in found)
    assert {told[3] for told in found} == {(("n", str(n)),) for n in range(-1, 500)} | {()}


def test_a_batch_that_is_repeated_has_the_same_ids(spark: SparkSession) -> None:
    from spark.writing.outgoing import records

    rows = [("same", "k"), ("same", "k"), ("same", None), ("other", "k")] * 3

    def ids(parts: int) -> list[str]:
        frame = spark.createDataFrame(rows, "data string, ordering_key string").repartition(parts)
        found = records(frame, query="q", batch=1).collect()
        return sorted(bytes(row.headers[0].value).decode() for row in found)

    assert ids(1) == ids(5)
    assert len(set(ids(2))) == 12


def test_equal_rows_of_two_runs_have_ids_of_their_own(spark: SparkSession) -> None:
    from pyspark.sql import functions as F

    from spark.writing.outgoing import records

    frame = spark.createDataFrame([("same", "k")], "data string, ordering_key string")

    def ids(**run: Any) -> list[str]:
        found = records(frame, query="daily", **run).collect()
        return [bytes(row.headers[0].value).decode() for row in found]

    assert ids(batch="2026-01-14") == ids(batch="2026-01-14") != ids(batch="2026-01-15")
    assert ids(row_id=F.lit("order-7")) == ["daily:order-7"]
    assert ids(row_id=F.lit("order-7"), batch=3) == ["daily:3:order-7"]
    with pytest.raises(InvalidArgument, match="batch: say which run this is"):
        ids()
    with pytest.raises(InvalidArgument, match="has a colon"):
        ids(batch="a:b")


def test_streams_with_checkpoints_of_their_own_never_share_an_id(
    spark: SparkSession, kafka: RunningKafka, name: str, tmp_path: Path
) -> None:
    from spark.reading.messages import messages
    from spark.writing.outgoing import write_stream

    with PubSub(kafka.bootstrap) as ps:
        ps.create_topic(name, partitions=1)
        ps.create_topic(f"{name}-to", partitions=1)
        ps.topic(name).publish(b"same", ordering_key="k").result(30)
    for checkpoint in ("one", "two"):
        source = messages(spark, name, bootstrap=kafka.bootstrap, stream=True)
        write_stream(
            source.select("data", "ordering_key"),
            f"{name}-to",
            query="copy",
            checkpoint=tmp_path / checkpoint,
            bootstrap=kafka.bootstrap,
            available_now=True,
        ).awaitTermination(120)
    ids = [row.message_id for row in messages(spark, f"{name}-to", bootstrap=kafka.bootstrap).collect()]
    assert len(set(ids)) == 2
    assert all(each.startswith("copy-") for each in ids)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (("x", "", None), "ordering_key cannot be empty"),
        (("x", "ä" * 513, None), "ordering_key exceeds maximum length of 1024 bytes"),
        (("x", "k", {"ps-id": "mine"}), "attributes: the name 'ps-id' begins with 'ps-'"),
        (("x", "k", {"a": None}), "attributes: the value of 'a' is null"),
    ],
)
def test_what_a_publisher_refuses_is_refused(spark: SparkSession, row: tuple[Any, ...], said: str) -> None:
    from spark.writing.outgoing import records

    frame = spark.createDataFrame([row], "data string, ordering_key string, attributes map<string,string>")
    with pytest.raises(Exception, match=re.escape(said)):
        records(frame, query="q", batch=1).collect()


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("body string", "no column data"),
        ("data int", "column data is int"),
        ("data string, ordering_key int", "ordering_key"),
    ],
)
def test_columns_that_can_t_be_a_message_are_named(spark: SparkSession, schema: str, said: str) -> None:
    from spark.writing.outgoing import records

    with pytest.raises(InvalidArgument, match=said):
        records(spark.createDataFrame([], schema), query="q", batch=1)


def test_the_consumer_of_another_language_sees_plain_records(
    spark: SparkSession, kafka: RunningKafka, name: str
) -> None:
    from pyspark.sql import functions as F

    from spark.writing.outgoing import write

    with PubSub(kafka.bootstrap) as ps:
        ps.create_topic(name, partitions=1)
    frame = spark.createDataFrame(
        [("body", "k", {"a": "1"})], "data string, ordering_key string, attributes map<string,string>"
    )
    write(frame, name, query="q", row_id=F.col("ordering_key"), bootstrap=kafka.bootstrap)
    consumer = Consumer(
        {"bootstrap.servers": kafka.bootstrap, "group.id": name, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([name])
    try:
        record = consumer.poll(30)
        assert record is not None
        assert (record.key(), record.value()) == (b"k", b"body")
        assert [header[0] for header in record.headers() or ()] == ["a", "ps-id"]
    finally:
        consumer.close()
