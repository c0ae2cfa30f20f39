"""A checkpoint that was put back from an older copy is refused, because Delta would leave out its next batches."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kafka_pubsub import FailedPrecondition, PubSub
from kafka_pubsub.local.pytest_plugin import RunningKafka
from tests.spark.session.support import KilledHere, Runner, crash_at, publish, values

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JOBS = ["archive", "cdc"]


@pytest.fixture
def run(spark: SparkSession, kafka: RunningKafka) -> Runner:
    return Runner(spark, kafka.bootstrap)


def some(first: int, last: int) -> list[tuple[str | None, str]]:
    return [(f"k{at}", f'{{"action": "INSERT", "data": {{}}, "temp": {at}}}') for at in range(first, last)]


@pytest.mark.parametrize("job", JOBS)
def test_a_checkpoint_that_is_older_than_the_table(run: Runner, name: str, tmp_path: Path, job: str) -> None:
    from spark import check_checkpoint
    from spark.base.tables import last_batch

    checkpoint, copy, to = tmp_path / "checkpoint", tmp_path / "copy", str(tmp_path / "table")
    options = {"to": to, "checkpoint": checkpoint}
    options["topics" if job == "archive" else "topic"] = (name,) if job == "archive" else name
    with PubSub(run.bootstrap) as ps:
        ps.create_topic(name, partitions=1)
        for part in range(3):
            publish(ps, name, some(part * 10, part * 10 + 10))
            run(job, **options)
            if part == 1:
                shutil.copytree(checkpoint, copy)
        publish(ps, name, some(30, 40))
    before = run.spark.read.format("delta").load(to).count()
    checkpoint.rename(tmp_path / "newest")
    copy.rename(checkpoint)
    for _ in range(2):
        with pytest.raises(
            FailedPrecondition, match=r"an older copy of the checkpoint was put back.*or begin anew"
        ):
            run(job, **options)
    with pytest.raises(FailedPrecondition, match="older copy"):
        check_checkpoint(run.spark, checkpoint, to)
    # Put back as it was last, it goes on.
    shutil.rmtree(checkpoint)
    (tmp_path / "newest").rename(checkpoint)
    check_checkpoint(run.spark, checkpoint, to, str(tmp_path / "no-table"))
    assert run(job, **options).facts["messages_read"] == 10
    assert run.spark.read.format("delta").load(to).count() >= before
    assert last_batch(run.spark, to, "another query") == -1


def test_a_batch_that_was_written_and_not_committed_is_no_reason(
    run: Runner, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from spark.archive.table import archived
    from spark.run.streams import Run

    to = str(tmp_path / "archive")
    with PubSub(run.bootstrap) as ps:
        ps.create_topic(name, partitions=1)
        publish(ps, name, some(0, 10))
    with monkeypatch.context() as patch:
        patch.setattr(Run, "_count", crash_at(1, Run._count))
        with pytest.raises(Exception, match=KilledHere.__name__):
            run("archive", topics=(name,), to=to)
    assert len(values(archived(run.spark, to))) == 10
    run("archive", topics=(name,), to=to)
    assert len(values(archived(run.spark, to))) == 10
