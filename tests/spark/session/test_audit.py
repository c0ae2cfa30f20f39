"""`audit` on a real topic: clean when all is well; a report; faults are named, and the job isn't ok."""

from __future__ import annotations

import re
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import pytest
from confluent_kafka import Producer

from kafka_pubsub import InvalidArgument, Message, NotFound, PubSub, RetryPolicy
from kafka_pubsub.config import DeadLetterPolicy
from kafka_pubsub.local.pytest_plugin import RunningKafka
from kafka_pubsub.log.partitioner import partition_of
from tests.spark.session.support import LONG, Runner

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


def consume(ps: PubSub, name: str, judgement: Any, done: Any) -> None:
    """Pulls until `done` of the seen messages."""
    seen: list[Message] = []
    enough = threading.Event()

    def handle(message: Message) -> None:
        seen.append(message)
        judgement(message)
        if done(seen):
            enough.set()

    with ps.subscription(name).pull(handle):
        assert enough.wait(90)
        # The last acks and nacks are stored within a commit interval.
        time.sleep(1)


def test_subscriptions_that_ack_park_and_store_dead_letter(run: Runner, name: str, tmp_path: Path) -> None:
    """A subscription acks all; another dead-letters key k1 and parks key k2, behind which its later messages wait."""
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
    assert outcome.text.endswith(f"report: file:{page}")
    text = page.read_text()
    assert "No promise was broken" in text
    assert re.search(r'class="tile bad"><span>dead</span><b>1</b>', text)
    assert f"Cluster</dt><dd>{run.bootstrap}" in text
    assert not re.search("https?:", text)
    # Nothing is left beside it: no checksum, no unfinished file.
    assert [path.name for path in tmp_path.iterdir()] == ["audit.html"]


def test_when_messages_were_published_is_told_in_utc_with_what_was_read(
    run: Runner, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noon = datetime(2026, 1, 14, 12, tzinfo=UTC)
    with PubSub(run.bootstrap) as ps:
        ps.create_topic(name, partitions=3, retention=LONG)
    producer = Producer({"bootstrap.servers": run.bootstrap})
    for seconds in (0, 0, 1, 90):
        producer.produce(
            name, b"x", key="k", partition=0, timestamp=int(noon.timestamp() * 1000) + seconds * 1000
        )
    # Older than the first record of any partition.
    producer.produce(name, b"x", key="l", partition=0, timestamp=1000)
    producer.flush(20)
    run("archive", topics=[name], to=tmp_path / "archive")
    # A driver may stand anywhere: its time zone is none of the report's.
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        facts = run("audit", topic=name, archive=tmp_path / "archive").facts
    finally:
        monkeypatch.undo()
        time.tzset()
    first, *others = facts["partitions"]
    assert (first["first"], first["last"]) == ("1970-01-01T00:00:01+00:00", "2026-01-14T12:01:30+00:00")
    assert (first["messages"], first["beginning"], first["end"], first["keys"]) == (5, 0, 5, 2)
    assert [(each["partition"], each["messages"], each["first"]) for each in others] == [
        (1, 0, None),
        (2, 0, None),
    ]
    rate = facts["rate"]
    assert (rate["begins_s"], rate["step_s"], rate["outside"]) == (int(noon.timestamp()), 1, 1)
    assert {at: count for at, count in enumerate(rate["counts"]) if count} == {0: 2, 1: 1, 90: 1}
    assert facts["read"]["cluster"]
    over = facts["archive"]["delays"]["over_time"]
    assert [at for at, value in enumerate(over["p99"]) if value is not None] == [0, 1, 90]
    assert facts["archive"]["delays"]["messages"] == 5


def test_a_report_is_written_by_spark_s_file_systems_and_refused_before_anything_is_read(
    run: Runner, name: str, tmp_path: Path
) -> None:
    with PubSub(run.bootstrap) as ps:
        ps.create_topic(name, partitions=1)
    page = tmp_path / "new" / "audit.html"
    run("audit", topic=name, report=f"file://{page}")
    page.write_text("an older one")
    run("audit", topic=name, report=f"file://{page}")
    assert page.read_text().startswith("<!doctype html>")
    run.notes.clear()
    for path, said in (
        (tmp_path, f"--report {tmp_path} is a directory: name a file"),
        ("nowhere://a/b.html", "--report: path 'nowhere://a/' can't be used"),
    ):
        with pytest.raises(InvalidArgument, match=re.escape(said)):
            run("audit", topic=name, report=path)
    with pytest.raises(click.UsageError, match="--first 'one' is neither a number nor any"):
        run("audit", topic=name, sequence=SEQUENCE, first="one")
    with pytest.raises(click.UsageError, match="give --report as well"):
        run("audit", topic=name, link="https://ui.example.org/{topic}/{partition}/{offset}")
    assert run.notes == []


def test_what_is_planted_in_a_log_is_named(run: Runner, name: str) -> None:
    producer = Producer({"bootstrap.servers": run.bootstrap})
    with PubSub(run.bootstrap) as ps:
        ps.create_topic(name, partitions=2)
    for key, numbers in {"a": [1, 3, 2, 4], "b": [1, 2, 2, 3], "c": [1, 4], "d": [1, 2], "e": [2]}.items():
        for number in numbers:
            producer.produce(name, b"x", key=key, partition=0, headers={"seq": str(number)})
    producer.produce(name, b"x", key="d", partition=1, headers={"seq": "3", "ps-id": "q:1"})
    producer.produce(name, b"x", key="<b>", partition=1, headers={"seq": "1", "ps-id": "q:1"})
    producer.flush(20)
    outcome = run("audit", topic=name, sequence=SEQUENCE, first=1)
    assert not outcome.ok
    places = {"<b>": 1, "a": 0, "b": 0, "c": 0, "e": 0}
    elsewhere = [(key, at) for key, at in places.items() if partition_of(key.encode(), 2) != at]
    assert elsewhere
    found = sorted((each["kind"], each["key"], each["said"]) for each in outcome.facts["findings"])
    assert found == [
        ("duplicate", "<b>", "id q:1 is there 2 times"),
        ("duplicate", "b", "number 2 comes twice"),
        ("gap", "c", "numbers 2 to 3 are missing"),
        ("gap", "e", "numbers 1 to 1 are missing"),
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
