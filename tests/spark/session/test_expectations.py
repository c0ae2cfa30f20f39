"""`--expect`: unexpected rows are in the table of rejected rows and nowhere else, with bytes and reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import pytest
from confluent_kafka import Producer

from kafka_pubsub import InvalidArgument, PubSub
from kafka_pubsub.local.pytest_plugin import RunningKafka
from tests.spark.session.support import LONG, Runner

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START = 1_700_000_000_000
MINUTE = 60_000
SCHEMA = "amount double, kind string"


@pytest.fixture
def run(spark: SparkSession, kafka: RunningKafka) -> Runner:
    return Runner(spark, kafka.bootstrap)


def publish(run: Runner, topic: str, bodies: list[Any], key: str | None = "k") -> None:
    """Each a minute after the row before; values that aren't bytes become JSON."""
    producer = Producer({"bootstrap.servers": run.bootstrap})
    for at, body in enumerate(bodies):
        value = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        producer.produce(topic, value, key=key, partition=0, timestamp=START + at * MINUTE)
    assert producer.flush(30) == 0


def topic_of(run: Runner, name: str, bodies: list[Any], **more: Any) -> None:
    with PubSub(run.bootstrap) as ps:
        ps.create_topic(name, partitions=1, retention=LONG)
    publish(run, name, bodies, **more)


def rejected(run: Runner, path: Path) -> list[tuple[int, str, bytes | None]]:
    rows = run.spark.read.format("delta").load(str(path)).orderBy("offset").collect()
    return [(row.offset, row.reason, None if row.data is None else bytes(row.data)) for row in rows]


def test_a_frame_is_split_in_rows_that_are_kept_and_rows_that_are_rejected(spark: SparkSession) -> None:
    from spark.reading.decoding import decoded
    from spark.reading.expectations import split

    columns = (
        "topic string, partition int, offset bigint, publish_time timestamp, message_id string, key binary, "
    )
    columns += "headers array<struct<key:string,value:binary>>, data binary, attributes map<string,string>"
    bodies = [
        b'{"amount": 1, "kind": "a"}',
        b'{"amount": -1, "kind": "b"}',
        b'{"kind": "a"}',
        b"no JSON",
        None,
    ]
    rows = [
        ("t", 0, at, None, f"t:0:{at}", b"k", None, body, {"kind": "of the message"})
        for at, body in enumerate(bodies)
    ]
    frame = decoded(spark.createDataFrame(rows, columns), SCHEMA + ", topic string")
    kept, left = split(frame, ["amount >= 0", "kind = 'a'", "topic = 't'"])
    assert kept.columns == frame.columns
    assert [row.offset for row in kept.collect()] == [0]
    assert left.columns == [
        *("topic", "partition", "offset", "publish_time", "message_id", "key", "headers", "data"),
        *("reason", "rejected_at"),
    ]
    found = left.orderBy("offset").collect()
    assert [(row.offset, row.reason) for row in found] == [
        (1, "expected amount >= 0; expected kind = 'a'"),
        (2, "expected amount >= 0"),
        (3, "isn't a JSON object"),
        (4, "a tombstone has no body"),
    ]
    assert [row.data and bytes(row.data) for row in found] == bodies[1:]
    for wrong, said in (
        ("no_such > 1", "isn't a condition over topic, .*amount, kind \\(--schema gives more\\)"),
        ("amount +", "isn't a condition"),
        ("amount + 1", "is no condition: it is neither true nor false"),
    ):
        with pytest.raises(InvalidArgument, match=said):
            split(frame, [wrong])


def test_rows_of_a_database_that_aren_t_as_expected(run: Runner, name: str, tmp_path: Path) -> None:
    bodies = [
        {"op": "c", "after": {"amount": 5}},
        {"op": "u", "after": {"amount": -5}},
        {"op": "x"},
        {"op": "u", "after": {"amount": "five"}},
        None,
    ]
    topic_of(run, name, bodies)
    options: dict[str, Any] = {"topic": name, "to": tmp_path / "state", "checkpoint": tmp_path / "checkpoint"}
    options |= {"envelope": "debezium", "schema": "amount double", "expect": ["amount >= 0"]}
    outcome = run("cdc", **options)
    assert rejected(run, tmp_path / "state-rejects") == [
        (1, "expected amount >= 0", json.dumps(bodies[1]).encode()),
        (2, "has the op x", json.dumps(bodies[2]).encode()),
        (3, "has a value of another type than the schema says", json.dumps(bodies[3]).encode()),
    ]
    (state,) = run.spark.read.format("delta").load(str(tmp_path / "state")).collect()
    # A row that is gone has no amount, and is taken all the same.
    assert (state.deleted, state.offset) == (True, 4)
    assert outcome.facts["rejected"] == 3
    assert "3 rejected to" in outcome.text
    assert run("cdc", **options).facts["rejected"] == 0
    assert len(rejected(run, tmp_path / "state-rejects")) == 3
    with pytest.raises(click.UsageError, match="--schema are the columns of a row here"):
        run("cdc", **{**options, "schema": '{"type": "long"}'})
    with pytest.raises(InvalidArgument, match="--expect 'amont >= 0' isn't a condition over"):
        run("cdc", **{**options, "expect": ["amont >= 0"], "checkpoint": tmp_path / "another"})
    assert not (tmp_path / "another").exists()


def test_an_archive_and_an_audit_with_expectations(run: Runner, name: str, tmp_path: Path) -> None:
    topic_of(run, name, [{"amount": 1, "kind": "a"}, {"amount": -1}, b"no JSON", {"amount": 2}])
    expected: dict[str, Any] = {"schema": SCHEMA, "expect": ["amount >= 0"]}
    outcome = run("archive", topics=[name], to=tmp_path / "archive", rejects=tmp_path / "left", **expected)
    kept = run.spark.read.format("delta").load(str(tmp_path / "archive")).orderBy("offset").collect()
    assert [(row.offset, row.record.amount) for row in kept] == [(0, 1.0), (3, 2.0)]
    reasons = [(1, "expected amount >= 0"), (2, "isn't a JSON object")]
    assert [each[:2] for each in rejected(run, tmp_path / "left")] == reasons
    assert outcome.facts["rejected"] == 2
    outcome = run("audit", topic=name, **expected)
    assert outcome.facts["steps"]["expectations"] == {"unexpected": 2}
    assert [(each["offset"], each["said"]) for each in outcome.facts["findings"]] == reasons


def test_a_replay_leaves_out_what_isn_t_as_expected(run: Runner, name: str, tmp_path: Path) -> None:
    from spark.reading.messages import messages

    topic_of(run, name, [{"amount": 1}, {"amount": -1}])
    topic_of(run, f"{name}-again", [])
    options: dict[str, Any] = {
        "topic": name,
        "to": f"{name}-again",
        "schema": SCHEMA,
        "expect": ["amount >= 0"],
    }
    assert run("replay", **options, dry_run=True).facts["messages"] == 1
    for _ in range(2):
        run("replay", **options, state=tmp_path / "state")
    again = messages(run.spark, f"{name}-again", bootstrap=run.bootstrap).collect()
    assert [row.origin.offset for row in again] == [0]
    assert [each[:2] for each in rejected(run, tmp_path / "state-rejects-table")] == [
        (1, "expected amount >= 0")
    ]
