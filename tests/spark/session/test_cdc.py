"""The job `cdc`: the last state of database rows, and unusable options and tables."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import pytest
from confluent_kafka import Producer

from kafka_pubsub import FailedPrecondition, InvalidArgument, PubSub
from kafka_pubsub.local.pytest_plugin import RunningKafka
from tests.spark.session.support import LONG, Runner

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START = 1_700_000_000_000
MINUTE = 60_000


@pytest.fixture
def run(spark: SparkSession, kafka: RunningKafka) -> Runner:
    return Runner(spark, kafka.bootstrap)


def publish(run: Runner, topic: str, messages: list[tuple[str | None, Any, int]]) -> None:
    """Key, body and time of each; a body that isn't bytes is JSON."""
    producer = Producer({"bootstrap.servers": run.bootstrap})
    for key, body, time in messages:
        value = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        producer.produce(topic, value, key=key, timestamp=START + time)
    assert producer.flush(30) == 0


def test_the_last_state_of_each_row_whatever_comes_again(run: Runner, name: str, tmp_path: Path) -> None:
    with PubSub(run.bootstrap) as ps:
        ps.create_topic(name, partitions=1, retention=LONG)
    to = str(tmp_path / "state")
    options: dict[str, Any] = {"topic": name, "to": to, "checkpoint": tmp_path / "checkpoint"}
    history: list[tuple[str | None, Any, int]] = [
        ("users:1", {"action": "INSERT", "data": {"n": 1}}, 0),
        ("users:2", {"action": "INSERT", "data": {"n": 1}}, 1),
        ("users:1", {"action": "UPDATE", "data": {"n": 2}}, 2),
        ("users:2", {"action": "DELETE"}, 3),
        ("users:3", {"action": "TRUNCATE"}, 4),
        (None, {"action": "INSERT", "data": {}}, 5),
        ("users:4", {"action": "INSERT", "data": {"n": 4}}, 6),
        ("users:4", None, 7),
    ]
    publish(run, name, history)

    def state() -> dict[str, tuple[bool, Any]]:
        rows = run.spark.read.format("delta").load(to).collect()
        return {row.ordering_key: (row.deleted, row.data and json.loads(row.data)) for row in rows}

    expected = {"users:1": (False, {"n": 2}), "users:2": (True, None), "users:4": (True, None)}
    run("cdc", **options, max_per_batch=5)
    assert state() == expected
    rejects = run.spark.read.format("delta").load(f"{to}-rejects")
    assert sorted(row.reason for row in rejects.collect()) == [
        "has no key: which row does it change?",
        "has the action TRUNCATE",
    ]
    # The whole topic again, by a job that has forgotten everything but the table.
    run("cdc", **{**options, "checkpoint": tmp_path / "another"})
    assert state() == expected
    # And a replay of the first two changes, which says where they were published.
    producer = Producer({"bootstrap.servers": run.bootstrap})
    for offset in (0, 1):
        key, body, _ = history[offset]
        headers: dict[str, Any] = {"ps-replayed": f"{name}:0:{offset}", "ps-id": f"replay:{offset}"}
        producer.produce(name, json.dumps(body), key=key, headers=headers)
    producer.flush(20)
    publish(run, name, [("users:1", {"action": "UPDATE", "data": {"n": 3}}, 9)])
    run("cdc", **options)
    assert state() == {**expected, "users:1": (False, {"n": 3})}


def test_the_greater_sequence_wins_wherever_it_lies(run: Runner, name: str, tmp_path: Path) -> None:
    with PubSub(run.bootstrap) as ps:
        ps.create_topic(name, partitions=1, retention=LONG)
    to = str(tmp_path / "state")
    options: dict[str, Any] = {"topic": name, "to": to, "checkpoint": tmp_path / "checkpoint"}
    options |= {"sequence_by": "get_json_object(cast(data AS string), '$.lsn')"}

    def change(key: str, lsn: int | None, action: str = "UPDATE") -> tuple[str | None, Any, int]:
        return key, {"action": action, "data": {"n": lsn}, "lsn": lsn}, 0

    # As numbers, 9 is before 10.
    publish(run, name, [change("a", 10), change("a", 9), change("b", 10), change("c", None)])
    run("cdc", **options)
    publish(run, name, [change("b", 9), change("a", 11, "DELETE"), change("a", 10)])
    outcome = run("cdc", **options)
    rows = run.spark.read.format("delta").load(to).collect()
    assert {row.ordering_key: (row.deleted, row.sequence) for row in rows} == {
        "a": (True, 11),
        "b": (False, 10),
    }
    (rejected,) = run.spark.read.format("delta").load(f"{to}-rejects").collect()
    assert (bytes(rejected.key), rejected.reason) == (b"c", "has no number by --sequence-by")
    assert outcome.facts["messages"] == 3
    options["checkpoint"] = tmp_path / "another"
    with pytest.raises(InvalidArgument, match="--sequence-by 'nonsense >' isn't an expression"):
        run("cdc", **{**options, "sequence_by": "nonsense >"})
    del options["sequence_by"]
    with pytest.raises(FailedPrecondition, match="was written with --sequence-by"):
        run("cdc", **options)


def test_changes_of_debezium_and_plain_rows(spark: SparkSession) -> None:
    from pyspark.sql import functions as F

    from spark.cdc.changes import states
    from spark.cdc.changes import told as as_told

    def told(envelope: Any, *bodies: str | None) -> tuple[list[Any], list[str]]:
        origin = "named_struct('topic', 't', 'partition', 0, 'offset', offset) AS origin"
        rows = [(b"k", "k", None if body is None else body.encode(), at) for at, body in enumerate(bodies)]
        frame = spark.createDataFrame(rows, "key binary, ordering_key string, data binary, offset bigint")
        frame = frame.selectExpr("*", "TIMESTAMP '2026-01-14 12:00:00' AS publish_time", origin)
        judged = as_told(frame, envelope).orderBy("offset").collect()
        changes = as_told(frame, envelope).where("problem is null")
        kept = states(changes, F.lit("id")).orderBy("offset").collect()
        problems = [row.problem for row in judged if row.problem is not None]
        return [(row.action, row.data, row.deleted) for row in kept], problems

    debezium = [
        '{"op": "c", "before": null, "after": {"n": 1}}',
        '{"schema": {}, "payload": {"op": "u", "before": {"n": 1}, "after": {"n": 2}}}',
        '{"op": "r", "after": {"n": 3}}',
        '{"op": "d", "before": {"n": 3}, "after": null}',
        None,
        '{"op": "t"}',
        '{"op": "u"}',
        "no JSON",
    ]
    assert told("debezium", *debezium) == (
        [
            ("INSERT", '{"n":1}', False),
            ("UPDATE", '{"n":2}', False),
            ("INSERT", '{"n":3}', False),
            ("DELETE", None, True),
            ("DELETE", None, True),
        ],
        ["has the op t", "has no data", "isn't JSON with an op"],
    )
    assert told("row", '{"n": 1}', None, "[1]", "{broken") == (
        [("UPDATE", '{"n":1}', False), ("DELETE", None, True)],
        ["isn't a JSON object", "isn't a JSON object"],
    )


def test_what_a_job_can_t_use_is_one_line_that_names_the_option(
    run: Runner, name: str, tmp_path: Path
) -> None:
    with PubSub(run.bootstrap) as ps:
        ps.create_topic(name, partitions=1)
    cdc: dict[str, Any] = {"topic": name, "to": tmp_path / "rows", "checkpoint": tmp_path / "c"}
    refused: list[tuple[dict[str, Any], str]] = [
        ({"sequence_by": "nonsense >"}, "--sequence-by 'nonsense >' isn't an expression"),
        ({"sequence_by": "no_such_column"}, "--sequence-by 'no_such_column' isn't an expression"),
        ({"every": "often"}, "--every 'often' isn't a span of time"),
        ({"optimize_every": "1 fortnight"}, "--optimize-every '1 fortnight' isn't a span"),
        ({"vacuum_every": "-1 day"}, "--vacuum-every '-1 day' isn't a span"),
    ]
    for more, said in refused:
        with pytest.raises((InvalidArgument, click.UsageError)) as failed:
            run("cdc", **cdc, **more)
        # As the command line prints it.
        error = failed.value
        line = error.format_message() if isinstance(error, click.UsageError) else str(error)
        assert re.search(said, line), line
        assert "\n" not in line
    assert list(tmp_path.iterdir()) == []


def test_a_span_of_time_is_read_by_spark(spark: SparkSession) -> None:
    from spark.run.job import seconds_of

    spans = {
        "10 seconds": 10,
        "1 hour 30 minutes": 5400,
        "500 MILLISECONDS": 0.5,
        "1.5 seconds": 1.5,
        "0 seconds": 0,
        "1 day": 86_400,
    }
    assert {text: seconds_of(spark, text, "--every") for text in spans} == spans
    for wrong in ("", "soon", "10", "10 parsecs", "seconds", "10 seconds later", "-1 hour"):
        with pytest.raises(InvalidArgument, match=f"--every '{wrong}' isn't a span of time: write"):
            seconds_of(spark, wrong, "--every")


def test_a_table_of_another_program_is_left_alone(run: Runner, name: str, tmp_path: Path) -> None:
    with PubSub(run.bootstrap) as ps:
        ps.create_topic(name, partitions=1)
    run.spark.range(3).write.parquet(str(tmp_path / "theirs"))
    (tmp_path / "state-rejects").mkdir()
    (tmp_path / "state-rejects" / "mine.txt").write_text("")
    before = sorted(str(path) for path in tmp_path.rglob("*"))
    for to in ("theirs", "state"):
        with pytest.raises(
            FailedPrecondition, match=r"it holds .* and no Delta table; choose another path or name"
        ):
            run("cdc", topic=name, to=tmp_path / to, checkpoint=tmp_path / "c")
    assert sorted(str(path) for path in tmp_path.rglob("*")) == before
