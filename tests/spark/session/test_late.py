"""Jobs with a watermark: a backlog loses nothing however uneven it is, and what came too late is kept when asked."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from kafka_pubsub import FailedPrecondition, InvalidArgument, PubSub
from kafka_pubsub.local.pytest_plugin import RunningKafka
from kafka_pubsub.model import TopicPartition
from spark.job import find
from tests.spark.session.support import LONG, KilledHere, Runner, crash_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START = 1_700_000_000_000
MINUTE = 60_000
#: Partition, key and time of a message.
Sent = tuple[int, str, int]
#: One partition holds an hour, the other one its last minute; the last message ends all that is open.
UNEVEN: list[Sent] = [
    *((0, "old", at * 12_000) for at in range(300)),
    *((1, "new", 59 * MINUTE + at * 1000) for at in range(60)),
    (1, "end", 300 * MINUTE),
]


@pytest.fixture
def run(spark: SparkSession, kafka: RunningKafka) -> Runner:
    return Runner(spark, kafka.bootstrap)


def topic(run: Runner, name: str, messages: list[Sent]) -> str:
    """A topic with these messages, and one for what a job publishes."""
    with PubSub(run.bootstrap) as ps:
        ps.create_topic(name, partitions=2, retention=LONG)
        ps.create_topic(f"{name}-out", partitions=1)
    send(run, name, messages)
    return name


def send(run: Runner, name: str, messages: list[Sent]) -> None:
    producer = Producer({"bootstrap.servers": run.bootstrap})
    for partition, key, time in messages:
        body = b'{"temp": 1, "type": "view"}'
        producer.produce(name, body, key=key, partition=partition, timestamp=START + time)
    assert producer.flush(30) == 0


def telemetry(run: Runner, name: str, at: Path, **more: Any) -> Any:
    options: dict[str, Any] = {"topic": name, "to": at / "windows", "checkpoint": at / "checkpoint"}
    never = {"optimize_every": "never", "vacuum_every": "never"}
    return run("telemetry", **options, fields=["temp"], late="1 minute", **never, **more)


def readings(run: Runner, at: Path) -> dict[str, int]:
    found: dict[str, int] = {}
    for row in run.spark.read.format("delta").load(str(at / "windows")).collect():
        found[row.ordering_key] = found.get(row.ordering_key, 0) + row.readings
    return found


def test_an_uneven_backlog_that_is_read_in_parts_loses_no_reading(
    run: Runner, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from spark.tables import Table

    topic(run, name, UNEVEN)
    with monkeypatch.context() as patch:
        patch.setattr(Table, "append", crash_at(2, Table.append))
        with pytest.raises(Exception, match=KilledHere.__name__):
            telemetry(run, name, tmp_path, max_per_batch=120)
    outcome = telemetry(run, name, tmp_path, max_per_batch=120)
    assert readings(run, tmp_path) == {"old": 300, "new": 60}
    assert outcome.facts["dropped_rows"] == 0
    read = [int(note.split(": ")[1].split()[0]) for note in run.notes if "messages read" in note]
    assert max(read) <= 120
    assert len([rows for rows in read if rows]) >= 3


def test_an_uneven_backlog_that_is_read_in_parts_loses_no_event(
    run: Runner, name: str, tmp_path: Path
) -> None:
    topic(run, name, UNEVEN)
    options = {"topic": name, "to": f"{name}-out", "checkpoint": tmp_path / "checkpoint"}
    outcome = run("sessions", **options, gap=5, late="1 minute", max_per_batch=120)
    assert (outcome.facts["sessions"], outcome.facts["dropped_rows"]) == (301, 0)


@pytest.mark.parametrize("job", ["telemetry", "sessions"])
def test_what_came_too_late_is_kept_when_asked(run: Runner, name: str, tmp_path: Path, job: str) -> None:
    topic(run, name, [(0, "a", 0), (0, "a", 10 * MINUTE)])
    late: dict[str, Any] = {"late_to": tmp_path / "late"}

    def go() -> Any:
        if job == "telemetry":
            return telemetry(run, name, tmp_path, **late)
        options = {"topic": name, "to": f"{name}-out", "checkpoint": tmp_path / "checkpoint"}
        return run("sessions", **options, **late, gap=60, late="1 minute")

    def kept() -> list[tuple[str, int]]:
        if not (tmp_path / "late").exists():
            return []
        found = run.spark.read.format("delta").load(str(tmp_path / "late")).collect()
        return sorted((row.ordering_key, int(row.time.timestamp() * 1000) - START) for row in found)

    go()
    assert kept() == []
    # The watermark is at 9 minutes: two are late, one is not.
    send(run, name, [(0, "b", 2 * MINUTE), (1, "c", 3 * MINUTE), (1, "d", 11 * MINUTE)])
    outcome = go()
    assert outcome.facts["dropped_rows"] == 2
    assert "2 left out because they came later than --late allows" in outcome.text
    assert kept() == [("b", 2 * MINUTE), ("c", 3 * MINUTE)]
    go()
    assert len(kept()) == 2


def test_readings_without_a_time_are_counted_and_kept(run: Runner, name: str, tmp_path: Path) -> None:
    topic(run, name, [])
    bodies = [json.dumps({"at": at, "temp": 1}) for at in (START, "soon", 10**10, START + 1, None)]
    end = json.dumps({"at": START + 60 * MINUTE, "temp": 1})
    producer = Producer({"bootstrap.servers": run.bootstrap})
    for body in [*bodies, end]:
        producer.produce(name, body.encode(), key="k", partition=1)
    assert producer.flush(30) == 0
    # The example of the help.
    (said,) = (each.help for each in find("telemetry").options if each.name == "time")
    example = re.search(r"e\.g\. (timestamp_millis.*)\. A reading", str(said))
    assert example is not None
    careless = example[1].replace("try_cast", "cast")
    for _ in range(2):
        with pytest.raises(InvalidArgument, match=rf"{name} partition 1 offset 1, .*'soon'"):
            telemetry(run, name, tmp_path / "careless", time=careless)
    outcome = telemetry(run, name, tmp_path, time=example[1], late_to=tmp_path / "late")
    # Both readings of the first minute, and one of 1970.
    assert readings(run, tmp_path) == {"k": 3}
    assert outcome.facts["without_time"] == 2
    assert "2 left out because they have no time" in outcome.text
    kept = run.spark.read.format("delta").load(str(tmp_path / "late")).collect()
    assert sorted(bytes(row.data).decode() for row in kept) == sorted([bodies[1], bodies[4]])
    assert {row.time for row in kept} == {None}


def test_a_batch_that_another_driver_has_planned_is_not_planned_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    from spark.admission import batch_of, is_open, put
    from spark.files import Files

    files = Files(spark, str(tmp_path))
    assert not is_open(files)
    at = [TopicPartition("t", number) for number in (0, 1)]
    put(files, spark, {at[0]: 5, at[1]: 7})
    assert is_open(files)
    with pytest.raises(FailedPrecondition, match=r"another driver .* has planned batch 0"):
        put(files, spark, {at[0]: 6, at[1]: 7})
    planned = batch_of(files, 0)
    assert planned == ({"t": {0: 5, 1: 7}}, 0)


def test_a_plan_ends_all_partitions_at_one_moment(spark: SparkSession, tmp_path: Path) -> None:
    """Times are seconds; the cluster is asked as Kafka answers: the first offset that isn't older."""
    from spark.admission import plan
    from spark.files import Files

    class Told:
        def __init__(self, *partitions: list[int]) -> None:
            self.times = partitions

        def with_lanes(self, topics: list[str]) -> list[str]:
            return topics

        def beginnings(self, topics: Any) -> dict[TopicPartition, int]:
            return {TopicPartition("t", at): 0 for at in range(len(self.times))}

        def ends(self, topics: Any) -> dict[TopicPartition, int]:
            return {TopicPartition("t", at): len(each) for at, each in enumerate(self.times)}

        def offsets_at(self, topics: Any, moment: int) -> dict[TopicPartition, int]:
            first = {
                at: next((offset for offset, time in enumerate(each) if time >= moment), None)
                for at, each in enumerate(self.times)
            }
            return {TopicPartition("t", at): offset for at, offset in first.items() if offset is not None}

    files = Files(spark, str(tmp_path))

    def planned(most: int, *partitions: list[int]) -> Any:
        told: Any = Told(*partitions)
        found = plan(told, "t", files, most)
        return None if found is None else {at.partition: end for at, end in found.items()}

    hour, minute = list(range(0, 3600, 12)), list(range(3540, 3600))
    assert planned(360, hour, minute) is None
    assert planned(100, hour, minute)[1] == 0
    ends = planned(300, hour, minute)
    # The hour has come as far as the minute: to the same second.
    assert 240 <= ends[0] + ends[1] <= 300
    assert ends[1] == 0 or abs(hour[ends[0]] - minute[ends[1]]) <= 12
    # More in one millisecond than a batch may take: all of it.
    assert planned(10, [5] * 50, [6] * 50) == {0: 50, 1: 0}
    # From the future: what is before it, then the rest at once.
    assert planned(3, [1, 2, 10**15, 3, 4, 5], [1]) == {0: 2, 1: 1}
    (tmp_path / "offsets").mkdir()
    (tmp_path / "commits").mkdir()
    (tmp_path / "offsets" / "0").write_text("v1\n{}\n" + json.dumps({"t": {"0": 2, "1": 1}}))
    (tmp_path / "commits" / "0").write_text("v1\n{}")
    assert planned(3, [1, 2, 10**15, 3, 4, 5], [1]) is None
