"""Keys that are forgotten and dates that are dropped: gone from an archive, and no findings of an audit."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import pytest
from confluent_kafka import Producer

from kafka_pubsub import FailedPrecondition, InvalidArgument, NotFound, PubSub
from kafka_pubsub.local.pytest_plugin import RunningKafka
from tests.spark.session.support import LONG, KilledHere, Runner, crash_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAY = 86_400_000


@pytest.fixture
def run(spark: SparkSession, kafka: RunningKafka) -> Runner:
    return Runner(spark, kafka.bootstrap)


def publish(run: Runner, topic: str, days_ago: int, keys: Iterable[str]) -> None:
    producer = Producer({"bootstrap.servers": run.bootstrap})
    at = round(datetime.now(UTC).timestamp() * 1000) - days_ago * DAY
    for partition in (0, 1):
        for key in keys:
            producer.produce(
                topic, f"{days_ago}", key=f"{key}-{partition}", partition=partition, timestamp=at
            )
    assert producer.flush(30) == 0


def kept(run: Runner, to: str) -> dict[str, int]:
    from spark import archived

    rows = archived(run.spark, to).groupBy("ordering_key").count().collect()
    return {row.ordering_key: row["count"] for row in sorted(rows)}


def audit(run: Runner, name: str, to: str) -> tuple[dict[str, int], dict[str, Any]]:
    """Returns the findings about the archive, and what was taken out."""
    found = run("audit", topic=name, archive=to).facts
    return found["steps"]["archive and log"], found["archive"]["taken_out"]


def test_an_audit_accepts_what_was_taken_out_on_purpose_and_nothing_else(
    run: Runner, name: str, tmp_path: Path
) -> None:
    to = str(tmp_path / "archive")
    first = (datetime.now(UTC) - timedelta(days=30)).date().isoformat()
    with PubSub(run.bootstrap) as ps:
        ps.create_topic(name, partitions=2, retention=LONG)
    for days in (40, 2, 0):
        publish(run, name, days, ("ann", "bob"))
    run("archive", topics=(name,), to=to)
    outcome = run("archive", to=to, forget=("ann-0", "it's nobody"))
    assert outcome.facts["forgotten"] == 3
    assert kept(run, to) == {"ann-1": 3, "bob-0": 3, "bob-1": 3}
    assert audit(run, name, to) == ({}, {"before": None, "keys": 1})

    publish(run, name, 0, ("ann",))
    outcome = run("archive", topics=(name,), to=to, keep="30 days")
    assert outcome.facts["dropped"] == 3
    assert kept(run, to) == {"ann-0": 1, "ann-1": 3, "bob-0": 2, "bob-1": 2}
    assert audit(run, name, to) == ({}, {"before": first, "keys": 1})

    # Another topic keeps its messages, and a longer time brings nothing back.
    assert run("archive", to=to, topics=("other",), forget=("bob-0",)).facts["forgotten"] == 0
    run("archive", topics=(name,), to=to, keep="60 days")
    assert audit(run, name, to) == ({}, {"before": first, "keys": 1})

    # What someone else deletes is a gap, also a later message of a forgotten key.
    for key, gaps in (("ann-0", 1), ("bob-1", 3)):
        run.spark.sql(f"DELETE FROM delta.`{to}` WHERE ordering_key = '{key}'")
        assert audit(run, name, to)[0] == {"gap": gaps}
    history = run.spark.sql(f"DESCRIBE HISTORY delta.`{to}`").where("operation = 'DELETE'").collect()
    assert not [row for row in history[2:] if "ann" in str(row.operationParameters)]


def test_an_audit_accepts_what_is_taken_out_beside_it(
    run: Runner, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from spark.archive.taken_out import TakenOut, drop_before, taken_out
    from spark.audit import audits
    from spark.base.tables import Table

    to = str(tmp_path / "archive")
    with PubSub(run.bootstrap) as ps:
        ps.create_topic(name, partitions=2, retention=LONG)
    for days in (40, 0):
        publish(run, name, days, ("ann",))
    run("archive", topics=(name,), to=to)
    dropped = []

    def then_drop(table: Table, topic_ids: Collection[str]) -> TakenOut:
        found = taken_out(table, topic_ids)
        dropped.append(drop_before(table, (datetime.now(UTC) - timedelta(days=30)).date()))
        return found

    monkeypatch.setattr(audits, "taken_out", then_drop)
    assert audit(run, name, to) == ({}, {"before": None, "keys": 0})
    assert dropped == [2]


def test_a_command_that_was_killed_between_note_and_deletion(
    run: Runner, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from spark.base.tables import Table

    to = str(tmp_path / "archive")
    with PubSub(run.bootstrap) as ps:
        ps.create_topic(name, partitions=2, retention=LONG)
    publish(run, name, 40, ("ann", "bob"))
    options: dict[str, Any] = {"topics": (name,), "to": to, "expect": ("data <> binary('2')",)}
    run("archive", **options)
    publish(run, name, 2, ("ann",))
    with monkeypatch.context() as patch:
        patch.setattr(Table, "delete", crash_at(1, Table.delete))
        with pytest.raises(KilledHere):
            run("archive", to=to, forget=("ann-1",))
        patch.setattr(Table, "delete", crash_at(1, Table.delete))
        with pytest.raises(KilledHere):
            run("archive", **options, keep="30 days", optimize_every="0 seconds")
    assert len(kept(run, to)) == 4
    # The two messages that were rejected are no part of the archive.
    assert audit(run, name, to)[0] == {"gap": 2}
    run("archive", to=to, forget=("ann-0", "ann-1"))
    assert kept(run, to) == {"bob-0": 1, "bob-1": 1}
    rejected = run.spark.read.format("delta").load(f"{to}-rejects")
    assert rejected.count() == 0, "rejected rows hold the key, too"
    run("archive", **options, keep="30 days")
    assert kept(run, to) == {}


@pytest.mark.parametrize(
    ("options", "kind", "said"),
    [
        ({"keep": "soon"}, InvalidArgument, "--keep 'soon' isn't a span of time"),
        ({"keep": "36 hours"}, InvalidArgument, "--keep '36 hours': an archive is kept for whole days"),
        ({"keep": "0 days"}, InvalidArgument, "an archive is kept for whole days"),
        ({"forget": ("",)}, InvalidArgument, "--forget: a key cannot be empty"),
        ({"forget": ("k",), "keep": "1 day"}, click.UsageError, "--forget goes with --to, --topic and --rejects only"),
        ({"forget": ("k",), "topics": ()}, NotFound, "isn't an archive of kafka_pubsub: nothing is there"),
        ({"forget": ("k",), "to": "{other}"}, FailedPrecondition, "isn't an archive of kafka_pubsub"),
    ],
)  # fmt: skip
def test_what_can_t_be_taken_out_is_said(
    run: Runner, name: str, tmp_path: Path, options: dict[str, Any], kind: type[Exception], said: str
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "file").write_text("ours")
    given = {"topics": (name,), "to": str(tmp_path / "archive"), **options}
    given["to"] = given["to"].format(other=other)
    with pytest.raises(kind, match=re.escape(said)):
        run("archive", **given)
    assert (other / "file").read_text() == "ours"


def test_a_date_that_is_over_is_sorted_once(spark: SparkSession, tmp_path: Path) -> None:
    from spark.archive.table import archive_table

    to = str(tmp_path / "archive")
    table = archive_table(spark, to)
    now = datetime.now(UTC)
    for day in (now - timedelta(days=2), now - timedelta(days=1), now):
        for number in range(2):
            rows = spark.range(100).selectExpr(
                "'t' AS topic",
                f"DATE '{day.date()}' AS date",
                "concat('k', (id * 37) % 100) AS ordering_key",
                "TIMESTAMP '2026-01-14 12:00:00' AS publish_time",
                "0 AS partition",
                "id AS offset",
                "'m' AS message_id",
                "now() AS archived_at",
            )
            table.append(rows.repartition(2), "q", day.toordinal() * 2 + number)

    def sorted_keys(day: datetime) -> bool:
        rows = table.read().where(f"date = DATE '{day.date()}'").coalesce(1).select("ordering_key").collect()
        keys = [row[0] for row in rows]
        return len(keys) == 200 and keys == sorted(keys)

    # The day before was sorted when it was over.
    table.optimize(print, (now - timedelta(days=1)).timestamp())
    days = [now - timedelta(days=back) for back in (2, 1, 0)]
    assert [sorted_keys(day) for day in days] == [False, True, False]
    table.optimize(print)
    assert [sorted_keys(day) for day in days] == [True, True, False]
