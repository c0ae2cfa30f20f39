"""`replay`: every message once more, in the order of its key, marked, and once only, wherever it is killed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import pytest

from kafka_pubsub import FailedPrecondition, InvalidArgument, NotFound, PubSub
from kafka_pubsub.local.pytest_plugin import RunningKafka
from kafka_pubsub.model import TopicPartition
from kafka_pubsub.subscribe.formats.record import Death, RetryInfo, dead_headers
from tests.spark.session.support import KilledHere, Runner, crash_at, publish

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from spark.base.connection import Connection


@pytest.fixture
def run(spark: SparkSession, kafka: RunningKafka) -> Runner:
    return Runner(spark, kafka.bootstrap)


def read(run: Runner, topic: str) -> dict[str | None, list[str]]:
    """Bodies by key, in the order of the log."""
    from spark.reading.messages import messages

    found: dict[str | None, list[str]] = {}
    rows = messages(run.spark, topic, bootstrap=run.bootstrap).orderBy("partition", "offset").collect()
    for row in rows:
        found.setdefault(row.ordering_key, []).append(bytes(row.data).decode())
    return found


def topics(ps: PubSub, name: str) -> tuple[str, str]:
    ps.create_topic(name, partitions=3)
    ps.create_topic(f"{name}-again", partitions=2)
    return name, f"{name}-again"


def test_in_key_order_filtered_marked_and_dry(run: Runner, name: str, tmp_path: Path) -> None:
    from spark.reading.messages import messages

    with PubSub(run.bootstrap) as ps:
        source, target = topics(ps, name)
        publish(ps, source, [(f"k{n % 5}", f"{n:03}") for n in range(200)], attributes={"kind": "created"})
        publish(ps, source, [(None, "free")], attributes={"kind": "created"})
        publish(ps, source, [("k1", "left out")])
    options: dict[str, Any] = {
        "topic": source,
        "to": target,
        "where": "attributes['kind'] = 'created'",
        "rate": 40,
    }
    dry = run("replay", **options, dry_run=True)
    assert dry.facts["messages"] == 201
    assert read(run, target) == {}
    outcome = run("replay", **options, state=tmp_path / "state")
    assert outcome.facts["written"] == 201
    by_key: dict[str | None, list[str]] = {
        f"k{key}": [f"{n:03}" for n in range(key, 200, 5)] for key in range(5)
    }
    assert read(run, target) == {**by_key, None: ["free"]}
    row = (
        messages(run.spark, target, bootstrap=run.bootstrap)
        .where("cast(data as string) = '007'")
        .collect()[0]
    )
    assert (row.origin.topic, row.attributes) == (source, {"kind": "created"})
    assert row.message_id == f"replay-{source}:{source}:{row.origin.partition}:{row.origin.offset}"
    # Several portions, because the rate asks for it; and a second start finds nothing to do.
    assert len(run.notes) >= 2, run.notes
    assert run("replay", **options, state=tmp_path / "state").facts["written"] == 0


@pytest.mark.parametrize("moment", ["before the write is noted", "in the middle of a portion"])
def test_a_replay_that_was_killed_writes_nothing_twice(
    run: Runner, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    from spark.base.files import Files
    from spark.replay import plan as replay_plan
    from spark.writing.outgoing import write_records

    with PubSub(run.bootstrap) as ps:
        source, target = topics(ps, name)
        publish(ps, source, [(f"k{n % 5}", f"{n:03}") for n in range(60)])
    options: dict[str, Any] = {"topic": source, "to": target, "state": tmp_path / "state"}

    def half(frame: DataFrame, topic: str, connection: Connection) -> None:
        # Of each key the first half, as a task that is killed leaves it.
        wanted = "cast(cast(value as string) as int) < 30"
        write_records(frame.where(wanted), topic, connection)
        raise KilledHere("half")

    with monkeypatch.context() as patch:
        if moment == "in the middle of a portion":
            patch.setattr(replay_plan, "write_records", half)
        else:
            # Mark, plan, and that the portion begins; then, when it is written, that it is done.
            patch.setattr(Files, "create", crash_at(4, Files.create))
        with pytest.raises(KilledHere):
            run("replay", **options)
    assert read(run, target) != {}
    run("replay", **options)
    assert read(run, target) == {f"k{key}": [f"{n:03}" for n in range(key, 60, 5)] for key in range(5)}


def test_dead_letters_go_back_as_they_were(run: Runner, name: str, tmp_path: Path) -> None:
    from confluent_kafka import Producer

    from spark.reading.messages import messages

    with PubSub(run.bootstrap) as ps:
        source, target = topics(ps, name)
    producer = Producer({"bootstrap.servers": run.bootstrap})
    theirs: list[tuple[str, bytes | None]] = [("a", b"1"), ("a", b"\xff")]
    for origin in (4, 9):
        headers = dead_headers(theirs, RetryInfo("id", 1, origin), Death("home", "billing", "exhausted"))
        producer.produce(source, f"{origin}", key=b"\xffk", headers=list(headers))
    producer.flush(20)
    run("replay", topic=source, to=target, state=tmp_path / "state", where="origin.offset > 5")
    (row,) = messages(run.spark, target, bootstrap=run.bootstrap).collect()
    assert (bytes(row.data), bytes(row.key)) == (b"9", b"\xffk")
    assert [(h.key, bytes(h.value)) for h in row.headers][:2] == theirs
    assert [h.key for h in row.headers][2:] == ["ps-id", "ps-replayed"]
    assert (row.origin.topic, row.origin.partition, row.origin.offset) == ("home", 1, 9)


def test_what_can_t_be_replayed_is_said(run: Runner, name: str, tmp_path: Path) -> None:
    with PubSub(run.bootstrap) as ps:
        source, target = topics(ps, name)
        publish(ps, source, [("k", "x")])
    with pytest.raises(click.UsageError, match="--state"):
        run("replay", topic=source, to=target)
    with pytest.raises(InvalidArgument, match="where 'nonsense >' isn't a condition"):
        run("replay", topic=source, to=target, where="nonsense >", dry_run=True)
    with pytest.raises(NotFound, match="no-such-topic"):
        run("replay", topic=source, to="no-such-topic", dry_run=True)
    run("replay", topic=source, to=target, state=tmp_path / "state")
    with pytest.raises(FailedPrecondition, match="belongs to another job: where is '' there and 'true' here"):
        run("replay", topic=source, to=target, state=tmp_path / "state", where="true")


def test_portions_share_out_each_range_once() -> None:
    from spark.replay.plan import Plan, Range

    places = [TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("t.lane.p1", 0)]
    empty = Range(TopicPartition("t.lane.p1", 1), 7, 7)
    bounds = [(5, 47), (0, 3), (0, 20)]
    plan = Plan(10, [*(Range(at, *each) for at, each in zip(places, bounds, strict=True)), empty])
    portions = list(plan.portions())
    read = [(where, at) for portion in portions for where, first, end in portion for at in range(first, end)]
    assert sorted(read) == [(where, at) for where, first, end in plan.ranges for at in range(first, end)]
    assert len(read) == plan.offsets == 65
    assert all(sum(end - first for _, first, end in portion) <= 10 for portion in portions)
    # A range that is left alone gets a whole portion: no more portions than the offsets need.
    assert len(portions) <= 65 / 10 + len(plan.ranges)
    one, two, *_ = places
    small = Plan(1, [Range(one, 0, 2), Range(two, 0, 1)])
    assert list(small.portions()) == [[(one, 0, 1), (two, 0, 1)], [(one, 1, 2)]]


@pytest.mark.parametrize("kept", ["topic", "archive"])
def test_a_replay_reads_each_offset_of_its_plan_once_and_nothing_that_came_later(
    run: Runner, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: str
) -> None:
    from spark.replay import plan as replay_plan

    with PubSub(run.bootstrap) as ps:
        source, target = topics(ps, name)
        publish(ps, source, [(f"k{n % 5}", f"{n:03}") for n in range(100)])
        options: dict[str, Any] = {"topic": source, "to": target}
        if kept == "archive":
            never = {"optimize_every": "never", "vacuum_every": "never"}
            run("archive", topics=(source,), to=tmp_path / "archive", **never)
            options["archive"] = tmp_path / "archive"
        asked: list[Any] = []
        kind = replay_plan.TopicSource if kept == "topic" else replay_plan.ArchiveSource
        read_whole = kind.read

        def spied(self: Any, ranges: Any) -> DataFrame:
            if not asked:
                publish(ps, source, [("k1", "later")])
            asked.extend(ranges)
            return read_whole(self, ranges)

        dry = run("replay", **options, dry_run=True)
        monkeypatch.setattr(kind, "read", spied)
        monkeypatch.setattr(replay_plan, "PORTION", 40)
        outcome = run("replay", **options, state=tmp_path / "state")
    assert dry.facts["messages"] == outcome.facts["messages"] == outcome.facts["written"] == 100
    offsets = [(where, at) for where, first, end in asked for at in range(first, end)]
    assert len(offsets) == len(set(offsets)) == 100
    assert len(asked) > 5
    assert read(run, target) == {f"k{key}": [f"{n:03}" for n in range(key, 100, 5)] for key in range(5)}
