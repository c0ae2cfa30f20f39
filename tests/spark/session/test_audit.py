"""`audit` on a real topic: clean when all is well; a report; what is wrong is named, and the job isn't ok."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from kafka_pubsub import Message, NotFound, PubSub, RetryPolicy
from kafka_pubsub.config import DeadLetterPolicy
from kafka_pubsub.core.partitioner import partition_of
from kafka_pubsub.local.pytest_plugin import RunningKafka
from tests.spark.session.support import Runner

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SEQUENCE = "attributes['seq']"


@pytest.fixture
def run(spark: SparkSession, kafka: RunningKafka) -> Runner:
    return Runner(spark, kafka.bootstrap)


def publish(ps: PubSub, topic: str, count: int, keys: int) -> None:
    handle = ps.topic(topic)
    for number in range(count):
        handle.publish(
            f"{number}".encode(),
            ordering_key=f"k{number % keys}",
            attributes={"seq": str(number // keys + 1)},
        )
    handle.flush(60)


def consume(ps: PubSub, name: str, verdict: Any, done: Any) -> None:
    """Pulls until `done` of what was seen."""
    seen: list[Message] = []
    enough = threading.Event()

    def handle(message: Message) -> None:
        seen.append(message)
        verdict(message)
        if done(seen):
            enough.set()

    with ps.subscription(name).pull(handle):
        assert enough.wait(90)
        # What was acked or nacked last is stored within a commit interval.
        time.sleep(1)


def test_subscriptions_that_ack_park_and_bury(run: Runner, name: str, tmp_path: Path) -> None:
    """One subscription acks all; one buries key k1 and parks key k2, behind which its later messages wait."""
    with PubSub(run.bootstrap) as ps:
        ps.create_topic(name, partitions=2)
        ps.create_topic(f"{name}-dead", partitions=1)
        ps.create_subscription(f"{name}-all", topic=name, message_ordering=True)
        ps.create_subscription(
            f"{name}-some",
            topic=name,
            message_ordering=True,
            retry=RetryPolicy(min_backoff=0.01, max_backoff=0.01),
            dead_letter=DeadLetterPolicy(topic=f"{name}-dead", max_attempts=5),
        )
        publish(ps, name, 60, 3)
        consume(ps, f"{name}-all", Message.ack, lambda seen: len(seen) >= 60)

        def some(message: Message) -> None:
            if message.ordering_key == "k2":
                message.nack(delay=3600)
            elif message.ordering_key == "k1" and message.data == b"1":
                message.nack()
            else:
                message.ack()

        wanted = {str(n).encode() for n in range(60) if n % 3 != 2}

        def done(seen: list[Message]) -> bool:
            return {each.data for each in seen} >= wanted

        consume(ps, f"{name}-some", some, done)
        page = tmp_path / "audit.html"
        outcome = run("audit", topic=name, sequence=SEQUENCE, report=page)
    assert outcome.facts["findings"] == []
    assert outcome.ok
    every, other = outcome.facts["subscriptions"]
    assert (every["acked"], every["waiting"], every["parked"], every["dead"]) == (60, 0, 0, 0)
    assert other["dead"] == 1
    assert other["reasons"]
    assert other["acked"] == 39
    assert other["parked"] + other["waiting"] == 20
    assert other["parked"] >= 1
    assert "No promise was broken" in page.read_text()
    assert "<svg" in page.read_text()
    assert "http" not in page.read_text()


def test_what_is_planted_in_a_log_is_named(run: Runner, name: str) -> None:
    producer = Producer({"bootstrap.servers": run.bootstrap})
    with PubSub(run.bootstrap) as ps:
        ps.create_topic(name, partitions=2)
    for key, numbers in {"a": [1, 3, 2, 4], "b": [1, 2, 2, 3], "c": [1, 4], "d": [1, 2]}.items():
        for number in numbers:
            producer.produce(name, b"x", key=key, partition=0, headers={"seq": str(number)})
    producer.produce(name, b"x", key="d", partition=1, headers={"seq": "3", "ps-id": "q:1"})
    producer.produce(name, b"x", key="<b>", partition=1, headers={"seq": "1", "ps-id": "q:1"})
    producer.flush(20)
    outcome = run("audit", topic=name, sequence=SEQUENCE)
    assert not outcome.ok
    places = {"<b>": 1, "a": 0, "b": 0, "c": 0}
    elsewhere = [(key, at) for key, at in places.items() if partition_of(key.encode(), 2) != at]
    assert elsewhere
    found = sorted((each["kind"], each["key"], each["said"]) for each in outcome.facts["findings"])
    assert found == [
        ("duplicate", "<b>", "id q:1 is there 2 times"),
        ("duplicate", "b", "number 2 comes twice"),
        ("gap", "c", "numbers 2 to 3 are missing"),
        *(
            ("misplaced", key, f"lies in partition {at}, publishing puts it into {1 - at}")
            for key, at in elsewhere
        ),
        ("reorder", "a", "number 2 comes after 3"),
        ("split", "d", "lies in partitions 0, 1"),
    ]
    assert "reorder" in outcome.text
    assert "partitioner=murmur2_random" in outcome.text


def test_a_job_leaves_no_setting_behind_in_the_session(run: Runner, name: str) -> None:
    with PubSub(run.bootstrap) as ps:
        ps.create_topic(name, partitions=1)
    run.spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        before = dict(run.spark.conf.getAll)
        run("audit", topic=name)
        assert dict(run.spark.conf.getAll) == before
        assert run.spark.conf.get("spark.sql.limit.initialNumPartitions") != "1000000"
    finally:
        run.spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_what_isn_t_there_is_said(run: Runner, name: str) -> None:
    with pytest.raises(NotFound, match="no-such-topic"):
        run("audit", topic="no-such-topic")
    with PubSub(run.bootstrap) as ps:
        ps.create_topic(name, partitions=1)
    with pytest.raises(NotFound, match="has no subscription 'nobody'"):
        run("audit", topic=name, subscriptions=["nobody"])
    outcome = run("audit", topic=name, sequence=SEQUENCE)
    assert outcome.ok
    assert outcome.facts["messages"] == 0


def test_a_page_shows_what_others_wrote_as_text() -> None:
    from spark.report import bars, page, stack, table

    hostile = "<script>alert(1)</script>"
    made = page(hostile, [(hostile, table([{hostile: hostile}], [hostile]) + bars({hostile: 1}, hostile))])
    made += stack({hostile: {hostile: 1}})
    assert "<script>" not in made
    assert "&lt;script&gt;" in made
