"""The seed's examples: sessions of user events, the last state of database rows, telemetry of devices."""

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


def received(run: Runner, topic: str) -> list[tuple[str, str, dict[str, Any]]]:
    from spark.transforms.messages import messages

    rows = messages(run.spark, topic, bootstrap=run.bootstrap).orderBy("partition", "offset").collect()
    return [(row.message_id, row.ordering_key, json.loads(bytes(row.data))) for row in rows]


def test_an_event_joins_the_sessions_that_are_near_it() -> None:
    from spark.transforms.user_sessions import Session, fold, silent

    first, over = fold([], "login", 100, 50)
    assert (first, over) == ([Session(100, 100, 1, {"login": 1})], None)
    earlier, over = fold(first, "view", 90, 50)
    assert (earlier, over) == ([Session(90, 100, 2, {"login": 1, "view": 1})], None)
    assert fold(earlier, "logout", 120, 50) == ([], Session(90, 120, 3, {"login": 1, "view": 1, "logout": 1}))
    # Too long after it, and too long before it: sessions of their own.
    both, _ = fold(earlier, "login", 200, 50)
    assert both == [*earlier, Session(200, 200, 1, {"login": 1})]
    three, _ = fold(both, "view", 30, 50)
    assert three == [Session(30, 30, 1, {"view": 1}), *both]
    # Near to two of them: one session.
    assert fold(both, "view", 150, 50)[0] == [Session(90, 200, 4, {"login": 2, "view": 2})]
    # A logout that comes late ends nothing that goes on after it.
    assert fold(earlier, "logout", 95, 50) == (
        [Session(90, 100, 3, {"login": 1, "view": 1, "logout": 1})],
        None,
    )
    assert silent(three, 150, 50) == ([three[2]], three[:2])


def test_sessions_that_a_gap_separates_stay_apart(run: Runner, name: str, tmp_path: Path) -> None:
    with PubSub(run.bootstrap) as ps:
        ps.create_topic(name, partitions=1, retention=LONG)
        ps.create_topic(f"{name}-sessions", partitions=1)
    options: dict[str, Any] = {"topic": name, "to": f"{name}-sessions", "checkpoint": tmp_path / "checkpoint"}
    options |= {"gap": 600, "late": "3 hours"}
    # 10:00 to 10:30 first, then an event at 09:00, which is late and in time.
    publish(run, name, [("ann", {"type": "view"}, at * MINUTE) for at in (60, 69, 78, 87)])
    run("sessions", **options)
    publish(run, name, [("ann", {"type": "view"}, 0)])
    run("sessions", **options)
    publish(run, name, [("bob", {"type": "login"}, 600 * MINUTE)])
    run("sessions", **options)
    found = sorted(
        (body["started"] - START, body["ended"] - START) for _, _, body in received(run, f"{name}-sessions")
    )
    assert found == [(0, 0), (60 * MINUTE, 87 * MINUTE)]


def test_sessions_end_by_logout_and_by_silence(run: Runner, name: str, tmp_path: Path) -> None:
    with PubSub(run.bootstrap) as ps:
        ps.create_topic(name, partitions=2, retention=LONG)
        ps.create_topic(f"{name}-sessions", partitions=1)
    options: dict[str, Any] = {"topic": name, "to": f"{name}-sessions", "checkpoint": tmp_path / "checkpoint"}
    options |= {"gap": 600, "late": "1 minute"}
    publish(
        run,
        name,
        [
            ("ann", {"type": "login"}, 0),
            # Late, but in time.
            ("ann", {"type": "page_view", "page": "/home"}, -10_000),
            ("bob", {"type": "login"}, MINUTE),
            ("ann", {"type": "logout"}, 2 * MINUTE),
            ("ann", b"no event", 2 * MINUTE),
            (None, {"type": "login"}, 2 * MINUTE),
        ],
    )
    run("sessions", **options)
    (ann,) = received(run, f"{name}-sessions")
    # The checkpoint's own id, the batch, and the session.
    assert re.fullmatch(rf"sessions-[0-9a-f-]{{36}}:0:ann/{START - 10_000}", ann[0])
    assert ann[1] == "ann"
    assert ann[2] == {
        "started": START - 10_000,
        "ended": START + 2 * MINUTE,
        "events": 3,
        "types": {"login": 1, "page_view": 1, "logout": 1},
        "why": "logout",
    }
    # An hour later: the watermark passes bob's silence; what is an hour late is left out.
    publish(run, name, [("cid", {"type": "login"}, 60 * MINUTE)])
    run("sessions", **options)
    publish(run, name, [("ann", {"type": "login"}, 3 * MINUTE), ("cid", {"type": "login"}, 61 * MINUTE)])
    run("sessions", **options)
    found = received(run, f"{name}-sessions")
    assert [(key, body["why"], body["events"]) for _, key, body in found] == [
        ("ann", "logout", 3),
        ("bob", "silence", 1),
    ]
    with pytest.raises(FailedPrecondition, match="gap is '600' there and '60' here"):
        run("sessions", **{**options, "gap": 60})


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

    from spark.transforms.changes import states
    from spark.transforms.changes import told as as_told

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


def test_windows_of_devices_and_alerts(run: Runner, name: str, tmp_path: Path) -> None:
    with PubSub(run.bootstrap) as ps:
        ps.create_topic(name, partitions=2, retention=LONG)
        ps.create_topic(f"{name}-alerts", partitions=1)
    to = str(tmp_path / "windows")
    options: dict[str, Any] = {
        "topic": name,
        "to": to,
        "checkpoint": tmp_path / "checkpoint",
        "fields": ["temp"],
    }
    options |= {"late": "30 seconds", "alert": "temp_max > 21", "alerts_to": f"{name}-alerts"}
    publish(
        run,
        name,
        [
            ("d1", {"temp": 20.5, "humidity": 65}, 0),
            ("d1", {"temp": 21.5}, 1000),
            ("d2", {"temp": 18.5}, 2000),
            ("d2", b"broken", 3000),
            ("d1", {"temp": 30}, 10 * MINUTE),
        ],
    )
    run("telemetry", **options)
    rows = run.spark.read.format("delta").load(to).orderBy("ordering_key").collect()
    assert [(row.ordering_key, row.readings, row.temp_min, row.temp_avg, row.temp_max) for row in rows] == [
        ("d1", 2, 20.5, 21.0, 21.5),
        ("d2", 2, 18.5, 18.5, 18.5),
    ]
    (alert,) = received(run, f"{name}-alerts")
    assert re.fullmatch(rf"telemetry-[0-9a-f-]{{36}}:\d+:d1/{START // MINUTE * MINUTE}", alert[0])
    assert (alert[1], alert[2]["temp_max"]) == ("d1", 21.5)
    run("telemetry", **options)
    assert run.spark.read.format("delta").load(to).count() == 2
    assert len(received(run, f"{name}-alerts")) == 1


def test_what_a_job_can_t_use_is_one_line_that_names_the_option(
    run: Runner, name: str, tmp_path: Path
) -> None:
    with PubSub(run.bootstrap) as ps:
        ps.create_topic(name, partitions=1)
    telemetry: dict[str, Any] = {"topic": name, "to": tmp_path / "w", "checkpoint": tmp_path / "c"}
    telemetry["fields"] = ["temp"]
    alerts = {"alert": "nonsense >", "alerts_to": name}
    sessions: dict[str, Any] = {"topic": name, "to": name, "checkpoint": tmp_path / "c"}
    refused: list[tuple[str, dict[str, Any], str]] = [
        ("telemetry", {**telemetry, "time": "nonsense >"}, "--time 'nonsense >' isn't an expression"),
        ("telemetry", {**telemetry, "time": "no_such_column"}, "--time 'no_such_column' isn't an expression"),
        ("telemetry", {**telemetry, "late": "soon"}, "'--late': 'soon' isn't a span of time"),
        ("telemetry", {**telemetry, "window": "1 fortnight"}, "'--window': '1 fortnight' isn't a span"),
        ("telemetry", {**telemetry, "vacuum_every": "x"}, "'--vacuum-every': 'x' isn't .* or 'never'"),
        ("telemetry", {**telemetry, **alerts}, "--alert 'nonsense >' isn't a condition"),
        ("sessions", {**sessions, "time": "nonsense >"}, "--time 'nonsense >' isn't an expression"),
        ("sessions", {**sessions, "every": "often"}, "'--every': 'often' isn't a span of time"),
    ]
    for job, options, said in refused:
        with pytest.raises((InvalidArgument, click.UsageError)) as failed:
            run(job, **options)
        # As the command line prints it.
        error = failed.value
        line = error.format_message() if isinstance(error, click.UsageError) else str(error)
        assert re.search(said, line), line
        assert "\n" not in line
    assert list(tmp_path.iterdir()) == []


def test_a_table_of_another_program_is_left_alone(run: Runner, name: str, tmp_path: Path) -> None:
    with PubSub(run.bootstrap) as ps:
        ps.create_topic(name, partitions=1)
    run.spark.range(3).write.parquet(str(tmp_path / "theirs"))
    (tmp_path / "state-rejects").mkdir()
    (tmp_path / "state-rejects" / "mine.txt").write_text("")
    before = sorted(str(path) for path in tmp_path.rglob("*"))
    for job, to, more in (
        ("cdc", "theirs", {}),
        ("cdc", "state", {}),
        ("telemetry", "theirs", {"fields": ["temp"]}),
    ):
        with pytest.raises(
            FailedPrecondition, match=r"it holds .* and no Delta table; choose another path or name"
        ):
            run(job, topic=name, to=tmp_path / to, checkpoint=tmp_path / "c", **more)
    assert sorted(str(path) for path in tmp_path.rglob("*")) == before


def test_what_is_wrong_is_said(run: Runner, name: str, tmp_path: Path) -> None:
    from spark.transforms.telemetry import alerts, windows

    with pytest.raises(click.UsageError, match="--alerts-to"):
        run("telemetry", topic=name, to=tmp_path, checkpoint=tmp_path, fields=["a"], alert="a > 1")
    frame = run.spark.createDataFrame([], "ordering_key string, data binary, publish_time timestamp")
    with pytest.raises(InvalidArgument, match="field: name at least one"):
        windows(frame, [], window="1 minute", late="1 minute", time="publish_time")
    with pytest.raises(InvalidArgument, match="alert 'nonsense > 1' isn't a condition over"):
        alerts(frame, "nonsense > 1")
