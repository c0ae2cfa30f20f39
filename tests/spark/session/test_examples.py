"""`spark/examples`: each program runs as a user starts it, on a real topic, and goes on where it stopped.

Three of them are the examples of message ordering: events of users, changes of a database, readings of devices.
"""

from __future__ import annotations

import json
import os
import runpy
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from kafka_pubsub import PubSub
from kafka_pubsub.local.pytest_plugin import RunningKafka
from tests.spark.session.support import LONG

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLES = Path(__file__).resolve().parents[3] / "spark" / "examples"
START = 1_700_000_000_000
MINUTE = 60_000
#: Runs a program with options; returns the text that it prints.
Run = Callable[..., str]


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The name under which users have the package."""
    import spark as ours

    monkeypatch.setitem(sys.modules, "kafka_pubsub_spark", ours)


@pytest.fixture
def run(
    spark: SparkSession,
    kafka: RunningKafka,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Run:
    def run(program: str, **options: object) -> str:
        told = [
            word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", str(value))
        ]
        monkeypatch.setattr(sys, "argv", [program, "--bootstrap", kafka.bootstrap, *told])
        capsys.readouterr()
        runpy.run_path(str(EXAMPLES / f"{program}.py"), run_name="__main__")
        return capsys.readouterr().out

    return run


def publish(
    kafka: RunningKafka, topic: str, messages: list[tuple[str | None, Any, int]], at: int = -1
) -> None:
    """Key, body and time of each; a body that isn't bytes is JSON."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for key, body, time in messages:
        value = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        producer.produce(topic, value, key=key, timestamp=START + time, partition=at)
    assert producer.flush(30) == 0


def topics(kafka: RunningKafka, name: str, messages: list[tuple[str | None, Any, int]], *others: str) -> None:
    with PubSub(kafka.bootstrap) as ps:
        ps.create_topic(name, partitions=2, retention=LONG)
        for other in others:
            ps.create_topic(other, partitions=1)
    publish(kafka, name, messages)


def received(spark: SparkSession, kafka: RunningKafka, topic: str) -> list[tuple[str, str, dict[str, Any]]]:
    from spark import messages

    rows = messages(spark, topic, bootstrap=kafka.bootstrap).orderBy("partition", "offset").collect()
    return [(row.message_id, row.ordering_key, json.loads(bytes(row.data))) for row in rows]


def table(spark: SparkSession, path: Path) -> list[Any]:
    return spark.read.format("delta").load(str(path)).collect()


def test_sessions_end_by_logout_and_by_silence(
    spark: SparkSession, kafka: RunningKafka, run: Run, name: str, tmp_path: Path
) -> None:
    to = f"{name}-sessions"
    events: list[tuple[str | None, Any, int]] = [
        ("ann", {"type": "login"}, 0),
        # Late, but in time.
        ("ann", {"type": "page_view", "page": "/home"}, -10_000),
        ("bob", {"type": "login"}, MINUTE),
        ("ann", {"type": "logout"}, 2 * MINUTE),
        # After a logout a session of its own begins.
        ("ann", {"type": "login"}, 3 * MINUTE),
        ("ann", b"no event", 3 * MINUTE),
        (None, {"type": "login"}, 3 * MINUTE),
    ]
    topics(kafka, name, events, to)
    options = {"topic": name, "to": to, "checkpoint": tmp_path / "checkpoint"}
    run("sessions", **options)
    assert received(spark, kafka, to) == []
    # Two hours later: the watermark passes their silence.
    publish(kafka, name, [("cid", {"type": "login"}, 120 * MINUTE)])
    run("sessions", **options)
    publish(kafka, name, [("ann", {"type": "login"}, 60 * MINUTE), ("cid", {"type": "view"}, 121 * MINUTE)])
    assert run("sessions", **options) == "1 events came too late\n"
    found = received(spark, kafka, to)
    assert sorted((key, body["started"] - START, body["events"], body["why"]) for _, key, body in found) == [
        ("ann", -10_000, 3, "logout"),
        ("ann", 3 * MINUTE, 1, "silence"),
        ("bob", MINUTE, 1, "silence"),
    ]
    (first,) = (body for _, _, body in found if body["why"] == "logout")
    assert first["types"] == {"login": 1, "page_view": 1, "logout": 1}
    assert first["ended"] == START + 2 * MINUTE
    # The checkpoint's own id tells a repeat.
    assert len({each[0] for each in found}) == 3
    assert all(each[0].startswith("sessions-") for each in found)


def test_windows_of_devices_and_alerts(
    spark: SparkSession, kafka: RunningKafka, run: Run, name: str, tmp_path: Path
) -> None:
    to, alerts = tmp_path / "windows", f"{name}-alerts"
    readings: list[tuple[str | None, Any, int]] = [
        ("d1", {"temp": 30.5, "humidity": 65}, 0),
        ("d1", {"temp": 31.5}, 1000),
        ("d2", {"temp": 18.5}, 2000),
        ("d2", b"broken", 3000),
        ("d2", {"temp": "warm"}, 3000),
        ("d2", {"humidity": 70}, 3000),
        ("d1", {"temp": 30}, 60 * MINUTE),
    ]
    topics(kafka, name, readings, alerts)
    options = {"topic": name, "to": to, "alerts_to": alerts}
    assert "has 3 readings that can't be used" in run("telemetry", **options)
    publish(kafka, name, [("d1", {"temp": 50}, 0), ("d1", {"temp": 20}, 61 * MINUTE)])
    assert run("telemetry", **options).startswith("1 rows came too late")
    rows = sorted(table(spark, to), key=lambda row: (row.ordering_key, row.start))
    assert [(row.ordering_key, row.readings, row.temp_min, row.temp_avg, row.temp_max) for row in rows] == [
        ("d1", 2, 30.5, 31.0, 31.5),
        ("d2", 1, 18.5, 18.5, 18.5),
    ]
    ((identity, device, alert),) = received(spark, kafka, alerts)
    assert identity.startswith("telemetry-")
    assert (device, alert["temp_max"]) == ("d1", 31.5)
    rejected = {(row.reason, bytes(row.data)): row for row in table(spark, tmp_path / "windows-rejected")}
    assert sorted(reason for reason, _ in rejected) == [
        "expected temp is not null",
        "has a value of another type than the schema says",
        "isn't a JSON object",
    ]
    assert {row.topic for row in rejected.values()} == {name}


def test_a_reading_without_a_time_is_rejected_and_ends_nothing(spark: SparkSession) -> None:
    """By the expression that the program's comment gives."""
    readings = runpy.run_path(str(EXAMPLES / "telemetry.py"))["readings"]
    bodies = ['{"temp": 1, "at": 5}', '{"temp": 1, "at": null}', '{"temp": 1, "at": "soon"}']
    columns = (
        "topic string, partition int, offset bigint, publish_time timestamp, message_id string, key binary, "
    )
    columns += "headers array<struct<key:string,value:binary>>, data binary, ordering_key string"
    rows: list[Any] = [("t", 0, at, None, "", b"k", [], body.encode(), "k") for at, body in enumerate(bodies)]
    kept, rejected = readings(spark.createDataFrame(rows, columns), "timestamp_millis(record.at)")
    assert [row.offset for row in kept.collect()] == [0]
    assert sorted((row.offset, row.reason) for row in rejected.collect()) == [
        (1, "expected (timestamp_millis(record.at)) is not null"),
        (2, "has a value of another type than the schema says"),
    ]


def test_an_uneven_backlog_loses_nothing(
    spark: SparkSession, kafka: RunningKafka, run: Run, name: str, tmp_path: Path
) -> None:
    """A single partition holds an hour, the other one its last minute; the last message ends all that is open."""
    topics(kafka, name, [], f"{name}-to")
    body = {"temp": 1, "type": "view"}
    publish(kafka, name, [("old", body, at * 12_000) for at in range(300)], at=0)
    publish(kafka, name, [("new", body, 59 * MINUTE + at * 1000) for at in range(60)], at=1)
    publish(kafka, name, [("end", body, 300 * MINUTE)], at=1)
    to = f"{name}-to"
    assert run("telemetry", topic=name, to=tmp_path / "windows", alerts_to=to).startswith("0 rows")
    counted: dict[str, int] = {}
    for row in table(spark, tmp_path / "windows"):
        counted[row.ordering_key] = counted.get(row.ordering_key, 0) + row.readings
    assert counted == {"old": 300, "new": 60}
    run("sessions", topic=name, to=to, checkpoint=tmp_path / "sessions")
    assert {(key, told["events"]) for _, key, told in received(spark, kafka, to)} == {
        ("old", 300),
        ("new", 60),
    }


def test_the_last_state_of_each_row_whatever_comes_again(
    spark: SparkSession, kafka: RunningKafka, run: Run, name: str, tmp_path: Path
) -> None:
    to = tmp_path / "rows"
    changes: list[tuple[str | None, Any, int]] = [
        ("users:1", {"action": "INSERT", "data": {"n": 1}}, 0),
        ("users:2", {"action": "INSERT", "data": {"n": 1}}, 1),
        ("users:1", {"action": "UPDATE", "data": {"n": 2}}, 2),
        ("users:2", {"action": "DELETE"}, 3),
        ("users:3", {"action": "TRUNCATE"}, 4),
        (None, {"action": "INSERT", "data": {}}, 5),
    ]
    topics(kafka, name, changes)

    def states() -> dict[str, tuple[bool, Any]]:
        return {
            row.ordering_key: (row.deleted, row.data and json.loads(row.data)) for row in table(spark, to)
        }

    expected = {"users:1": (False, {"n": 2}), "users:2": (True, None)}
    run("changes", topic=name, to=to)
    assert states() == expected
    publish(kafka, name, [("users:1", {"action": "UPDATE", "data": {"n": 3}}, 6)])
    run("changes", topic=name, to=to)
    assert states() == {**expected, "users:1": (False, {"n": 3})}
    # As a kill leaves it between the tables and the checkpoint: the batch is repeated.
    shutil.rmtree(tmp_path / "rows-checkpoint" / "commits")
    run("changes", topic=name, to=to)
    assert states() == {**expected, "users:1": (False, {"n": 3})}
    assert sorted(row.reason for row in table(spark, tmp_path / "rows-rejected")) == [
        "expected action in ('INSERT', 'UPDATE', 'DELETE')",
        "expected ordering_key is not null",
    ]


def test_the_hottest_keys(kafka: RunningKafka, run: Run, name: str, tmp_path: Path) -> None:
    from spark.base.spark_session import bundle

    messages: list[tuple[str | None, Any, int]] = [
        ("hot" if number % 2 else f"k{number % 30}", b"x", 0) for number in range(200)
    ]
    topics(kafka, name, [*messages, *[(None, b"x", 0)] * 10])
    told = run("hot_keys", topic=name, top=2)
    assert "210 messages, 200 with a key" in told
    assert " 50.00%          100 messages" in told
    assert "the hottest key lets 2.0 partitions be busy at once" in told
    assert len(told.splitlines()) == 5
    # As a program of its own, with nothing of ours but the zip.
    zipped = bundle(tmp_path / "kafka_pubsub.zip", driver=True)
    program = [sys.executable, "-P", str(EXAMPLES / "hot_keys.py")]
    ran = subprocess.run(
        [*program, "--bootstrap", kafka.bootstrap, "--topic", name, "--since", "2100-01-01"],
        env={**os.environ, "PYTHONPATH": str(zipped)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout == "0 messages, 0 with a key\n"
