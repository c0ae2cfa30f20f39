"""Spark reads causal topics in the order that a plain Kafka consumer and every subscription see."""

from __future__ import annotations

import random
from concurrent.futures import Future
from contextlib import ExitStack
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, TopicPartition

from kafka_pubsub import FailedPrecondition, PubSub
from kafka_pubsub.local.pytest_plugin import RunningKafka
from kafka_pubsub.multicast.service import Sequencer
from tests.spark.session.support import Runner

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kafka_pubsub.multicast.future import Sent

#: Seconds for an answer on a busy machine.
PATIENCE = 60.0


def test_spark_reads_causal_topics_in_the_agreed_order(
    spark: SparkSession, kafka: RunningKafka, name: str, tmp_path: Path
) -> None:
    """Its rows by offset are in the order of the timestamps that the futures gave, in batches and streams."""
    from spark.reading.messages import messages

    topics, chances = [f"{name}.{letter}" for letter in "abc"], random.Random(1)
    sent: dict[bytes, tuple[list[str], Future[Sent]]] = {}
    with ExitStack() as stack:
        one, two = (stack.enter_context(PubSub(kafka.bootstrap)) for _ in range(2))
        for topic in topics:
            one.create_topic(topic, causal=True)
        # After the topics, so that a running sequencer has them: a sequencer that finds no topics runs, too.
        stack.enter_context(Sequencer(one)).wait_until_running(PATIENCE)
        for number in range(200):
            some = chances.sample(topics, chances.randint(1, 3))
            sent[b"%d" % number] = (some, (one, two)[number % 2].publish_multi(some, b"%d" % number))
        at = {body: future.result(PATIENCE).timestamp for body, (_, future) in sent.items()}
        agreed = {
            topic: sorted((body for body, (some, _) in sent.items() if topic in some), key=at.__getitem__)
            for topic in topics
        }
        # A future resolves when a single topic has its message; the others get the message a moment later.
        for topic in topics:
            assert consumed(kafka.bootstrap, topic, len(agreed[topic])) == agreed[topic]
    batch = homes(messages(spark, topics, bootstrap=kafka.bootstrap))
    assert batch == agreed
    for first, second in combinations(topics, 2):
        assert set(agreed[first]) & set(agreed[second]), "the plan must have messages for both"
    stream = messages(spark, topics, bootstrap=kafka.bootstrap, stream=True, max_per_batch=50)
    streamed: dict[str, list[bytes]] = {topic: [] for topic in topics}

    def take(rows: DataFrame, _: int) -> None:
        for topic, bodies in homes(rows).items():
            streamed[topic] += bodies

    query = (
        stream.writeStream.foreachBatch(take)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    assert streamed == agreed


def test_spark_writes_to_no_causal_topic(
    spark: SparkSession, kafka: RunningKafka, name: str, tmp_path: Path
) -> None:
    from spark import messages, write, write_stream

    rows = spark.createDataFrame([("x",)], "data string")
    with PubSub(kafka.bootstrap) as ps:
        ps.create_topic(name, causal=True)
        ps.create_topic(f"{name}.plain", partitions=1)
    said = f"topic '{name}' is causal: a sequencer decides"
    with pytest.raises(FailedPrecondition, match=said):
        write(rows, name, query="q", batch=1, bootstrap=kafka.bootstrap)
    stream = messages(spark, f"{name}.plain", bootstrap=kafka.bootstrap, stream=True)
    with pytest.raises(FailedPrecondition, match=said):
        write_stream(stream, name, query="q", checkpoint=tmp_path / "w", bootstrap=kafka.bootstrap)
    with pytest.raises(FailedPrecondition, match=said):
        Runner(spark, kafka.bootstrap)("replay", topic=f"{name}.plain", to=name, state=str(tmp_path / "r"))
    assert messages(spark, name, bootstrap=kafka.bootstrap).count() == 0


def consumed(bootstrap: str, topic: str, count: int) -> list[bytes]:
    """Returns the first bodies that a plain consumer of committed records gets."""
    consumer, found = Consumer({"bootstrap.servers": bootstrap, "group.id": "none"}), list[bytes]()
    consumer.assign([TopicPartition(topic, 0, 0)])
    while len(found) < count:
        record = consumer.poll(PATIENCE)
        assert record is not None
        assert record.error() is None
        found.append(record.value() or b"")
    consumer.close()
    return found


def homes(rows: DataFrame) -> dict[str, list[bytes]]:
    """Returns the bodies of each topic by offset."""
    found: dict[str, list[bytes]] = {}
    for row in sorted(rows.collect(), key=lambda row: (row.topic, row.offset)):
        found.setdefault(row.topic, []).append(bytes(row.data))
    return found
