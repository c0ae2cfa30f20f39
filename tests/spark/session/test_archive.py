"""`archive`: the log, once each; topics that grow, maintenance; places that aren't ours or are free."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from kafka_pubsub import FailedPrecondition, InvalidArgument, NotFound, PubSub
from kafka_pubsub.local.pytest_plugin import RunningKafka
from tests.spark.session.support import KilledHere, Runner, crash_at, publish, values

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def run(spark: SparkSession, kafka: RunningKafka) -> Runner:
    return Runner(spark, kafka.bootstrap)


def some(first: int, last: int) -> list[tuple[str | None, str]]:
    return [(f"k{n % 3}", f"{n:03}") for n in range(first, last)]


def expected(last: int) -> list[str]:
    return [f"{n:03}" for n in range(last)]


def test_a_schema_that_is_forgotten_once_is_asked_for(run: Runner, name: str, tmp_path: Path) -> None:
    from spark.archive.table import archived

    to, schema = str(tmp_path / "archive"), "n int"
    with PubSub(run.bootstrap) as ps:
        ps.create_topic(name, partitions=1)
        publish(ps, name, [(None, '{"n": 1}')])
        run("archive", topics=(name,), to=to, schema=schema)
        publish(ps, name, [(None, '{"n": 2}')])
    with pytest.raises(FailedPrecondition, match="holds decoded bodies, in the column record: give --schema"):
        run("archive", topics=(name,), to=to)
    run("archive", topics=(name,), to=to, schema=schema)
    assert sorted(row.record.n for row in archived(run.spark, to).collect()) == [1, 2]


def test_each_message_once_over_several_runs(run: Runner, name: str, tmp_path: Path) -> None:
    from spark.archive.table import archived

    to = str(tmp_path / "archive")
    with PubSub(run.bootstrap) as ps:
        ps.create_topic(name, partitions=2)
        outcomes = []
        for first in (0, 60):
            publish(ps, name, some(first, first + 60))
            outcomes.append(run("archive", topics=(name,), to=to, max_per_batch=40))
            assert outcomes[-1].ok
    again = run("archive", topics=(name,), to=to)
    found = archived(run.spark, to)
    assert values(found) == expected(120)
    assert again.facts["batches"] == 0
    row = found.where("cast(data as string) = '007'").first()
    assert row is not None
    assert (row.ordering_key, row.topic, row.date) == ("k1", name, row.publish_time.date())
    assert row.archived_at > row.publish_time
    plain = run.spark.read.format("delta").load(to)
    assert values(plain) == expected(120)
    assert (tmp_path / "archive" / f"topic={name}" / f"date={row.date}").is_dir()
    # Spark's own figures: how much was read, how fast, how far the log's end is away.
    assert [each.facts["messages_read"] for each in outcomes] == [60, 60]
    assert outcomes[1].facts["messages_per_s"] > 0
    assert outcomes[1].facts["behind"] == 0
    assert re.search(
        r"batch \d+: \d+ messages read, [\d,]+ a second, \d+ behind the log's end", "\n".join(run.notes)
    )
    # Small files are put together when that is due: at the end of a first run, and not an hour later.
    assert [each.facts["optimized_files"] > 0 for each in outcomes] == [True, False]
    assert len(plain.inputFiles()) > 1
    run("archive", topics=(name,), to=to, optimize_every="0 seconds", vacuum_every="0 seconds")
    assert len(run.spark.read.format("delta").load(to).inputFiles()) == 1
    assert values(archived(run.spark, to)) == expected(120)
    operations = {row.operation for row in run.spark.sql(f"DESCRIBE HISTORY delta.`{to}`").collect()}
    assert {"OPTIMIZE", "VACUUM END"} <= operations


def test_tables_are_optimized_between_two_batches_and_not_within_one(
    run: Runner, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from spark.archive.table import archived
    from spark.base.files import Files
    from spark.base.tables import Table
    from spark.run import ownership

    to = str(tmp_path / "archive")
    within: list[bool] = []
    with PubSub(run.bootstrap) as ps:
        ps.create_topic(name, partitions=1)
        publish(ps, name, some(0, 20))

        def spied(self: Table, note: Callable[[str], None], last: float | None) -> int:
            within.append(ownership.is_open(Files(self.spark, f"{to}-checkpoint")))
            if len(within) == 3:
                raise KilledHere("the third time")
            publish(ps, name, some(20 * len(within), 20 * len(within) + 20))
            return 0

        monkeypatch.setattr(Table, "optimize", spied)
        options = {"max_per_batch": 10, "follow": True, "every": "100 milliseconds"}
        with pytest.raises(KilledHere):
            run("archive", topics=(name,), to=to, **options, optimize_every="0 seconds")
    assert within == [False, False, False]
    assert values(archived(run.spark, to)) == expected(60)


def test_how_many_messages_wait_behind_a_batch_is_told(run: Runner, name: str, tmp_path: Path) -> None:
    with PubSub(run.bootstrap) as ps:
        ps.create_topic(name, partitions=1)
        publish(ps, name, some(0, 60))
    told = run("archive", topics=(name,), to=str(tmp_path / "archive"), max_per_batch=20).facts["progress"]
    assert [(each["messages_read"], each["behind"]) for each in told] == [(20, 40), (20, 20), (20, 0)]


def test_topics_that_appear_or_grow_are_taken_in(run: Runner, name: str, tmp_path: Path) -> None:
    from spark.archive.table import archived

    to = str(tmp_path / "archive")
    pattern = f"{name}-.*"
    with PubSub(run.bootstrap) as ps:
        ps.create_topic(f"{name}-a", partitions=1)
        publish(ps, f"{name}-a", some(0, 10))
        run("archive", pattern=pattern, to=to)
        admin = AdminClient({"bootstrap.servers": run.bootstrap})
        for future in admin.create_partitions([NewPartitions(f"{name}-a", 3)]).values():
            future.result(20)
        ps.create_topic(f"{name}-b", partitions=2)
        publish(ps, f"{name}-b", some(10, 20))
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": run.bootstrap})
    producer.produce(f"{name}-a", "020", partition=2)
    producer.flush(20)
    run("archive", pattern=pattern, to=to)
    assert values(archived(run.spark, to)) == expected(21)


def test_a_path_or_a_checkpoint_that_isn_t_ours(run: Runner, name: str, tmp_path: Path) -> None:
    from spark.archive.table import archived

    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_text("")
    (tmp_path / "strange" / "offsets").mkdir(parents=True)
    with PubSub(run.bootstrap) as ps:
        for suffix in ("", "-other"):
            ps.create_topic(name + suffix, partitions=1)
        publish(ps, name, some(0, 3))
    checkpoint = str(tmp_path / "checkpoint")
    run("archive", topics=(name,), to=str(tmp_path / "a"), checkpoint=checkpoint)

    def refuses(
        said: str, topic: str = name, to: str = "a", checkpoint: str = checkpoint, **more: str
    ) -> None:
        with pytest.raises((FailedPrecondition, NotFound, InvalidArgument), match=said):
            run("archive", topics=(topic,), to=str(tmp_path / to), checkpoint=checkpoint, **more)

    refuses(r"--to .*photos isn't an archive of kafka_pubsub: it holds cat\.jpg", to="photos")
    refuses("belongs to another job: topics is", topic=f"{name}-other")
    refuses("belongs to another job: to is", to="c")
    refuses("was filled with another checkpoint", checkpoint=str(tmp_path / "newer"))
    refuses(
        "isn't a checkpoint of kafka_pubsub: it holds offsets", to="d", checkpoint=str(tmp_path / "strange")
    )
    with pytest.raises(InvalidArgument, match="--pattern '\\[' isn't a regular expression"):
        run("archive", pattern="[", to=str(tmp_path / "e"))
    with pytest.raises(FailedPrecondition, match="isn't an archive"):
        archived(run.spark, str(tmp_path / "photos"))
    # An archive that is gone, with a checkpoint that remembers it.
    shutil.rmtree(tmp_path / "a")
    refuses("--to .*a is gone: checkpoint .* has archived there before")
    with pytest.raises(NotFound, match=r"--archive .*nothing is there"):
        run("replay", archive=str(tmp_path / "a"), topic=name, to=name, dry_run=True)
    # A refused table made nothing.
    assert sorted(each.name for each in tmp_path.iterdir()) == ["checkpoint", "photos", "strange"]


def test_a_job_that_fails_before_its_first_batch_owns_no_path(
    run: Runner, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from spark.writing import outgoing

    with PubSub(run.bootstrap) as ps:
        for suffix in ("", "-typo"):
            ps.create_topic(name + suffix, partitions=1)
        publish(ps, name, some(0, 5))
    to = str(tmp_path / "archive")
    with pytest.raises(NotFound, match="doesn't exist"):
        run("archive", topics=("no-such-topic",), to=to)
    assert list(tmp_path.iterdir()) == []
    with monkeypatch.context() as patch:
        # Killed when the checkpoint is claimed, and nothing was read yet.
        patch.setattr(outgoing, "start", crash_at(1, outgoing.start))
        with pytest.raises(KilledHere):
            run("archive", topics=(f"{name}-typo",), to=to)
    assert (tmp_path / "archive-checkpoint" / "kafka_pubsub.json").exists()
    run("archive", topics=(name,), to=to)
    # From its first batch on it does, whichever way the path is written.
    again = {"topics": (name,), "to": f"file:{to}/", "checkpoint": f"{to}-checkpoint"}
    assert run("archive", **again).facts["batches"] == 0
    with pytest.raises(FailedPrecondition, match="belongs to another job: topics is"):
        run("archive", topics=(f"{name}-typo",), to=to)
