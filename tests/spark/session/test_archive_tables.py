"""Delta tables of ours: a batch is there once, two writers, readers at work, new fields, foreign tables."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kafka_pubsub import FailedPrecondition, InvalidArgument, NotFound, SchemaError
from tests.support import until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from spark.base.tables import Table

BATCHES = 10_000
#: Seconds in which an archive of so many batches opens.
OPENS_IN = 3.0


def batch(spark: SparkSession, first: int, last: int, more: str = "") -> DataFrame:
    days = "CASE WHEN id % 2 = 0 THEN DATE '2026-01-14' ELSE DATE '2026-01-15' END AS date"
    others = [
        "TIMESTAMP '2026-01-14 12:00:00' AS publish_time",
        "'k' AS ordering_key",
        "0 AS partition",
        "concat('m', id) AS message_id",
        "TIMESTAMP '2026-01-14 12:00:01' AS archived_at",
    ]
    columns = ["id AS offset", "'7' AS topic", days, *others, *([more] if more else [])]
    return spark.range(first, last, 1, 2).selectExpr(*columns)


def opened(spark: SparkSession, path: Path | str) -> Table:
    from spark.archive.table import archive_table

    return archive_table(spark, str(path))


def held(frame: DataFrame) -> list[int]:
    return sorted(row["offset"] for row in frame.select("offset").collect())


def blocking(rows: DataFrame, flag: Path) -> DataFrame:
    """The same rows; the task that writes them says so in a second file, and waits until the first is gone."""
    name = str(flag)

    def wait(batches: Iterable[Any]) -> Iterator[Any]:
        import os
        import time

        for each in batches:
            with open(f"{name}-reached", "w"):
                pass
            while os.path.exists(name):  # runs on an executor
                time.sleep(0.01)
            yield each

    return rows.coalesce(1).mapInArrow(wait, rows.schema)


def listed(path: Path) -> list[str]:
    return sorted(str(each.relative_to(path)) for each in path.rglob("*"))


def test_a_batch_that_is_written_again_is_there_once(spark: SparkSession, tmp_path: Path) -> None:
    from spark.archive.table import archived

    table = opened(spark, tmp_path / "a")
    table.append(batch(spark, 0, 10), "q", 0)
    broken = batch(spark, 10, 20, "IF(id = 19, raise_error('killed here'), 'x') AS more")
    with pytest.raises(Exception, match="killed here"):
        table.append(broken, "q", 1)
    assert held(archived(spark, str(tmp_path / "a"))) == list(range(10))
    again = opened(spark, tmp_path / "a")
    for first, number in ((10, 1), (10, 1), (0, 0)):
        again.append(batch(spark, first, first + 10), "q", number)
    assert held(archived(spark, str(tmp_path / "a"))) == list(range(20))
    assert (tmp_path / "a" / "topic=7" / "date=2026-01-14").is_dir()
    row = archived(spark, str(tmp_path / "a")).first()
    assert row is not None
    # A number in a directory's name stays a text.
    assert row.topic == "7"


def test_a_table_that_was_half_made_by_a_driver_that_was_killed_is_made(
    spark: SparkSession, tmp_path: Path
) -> None:
    from spark.archive.table import archived

    (tmp_path / "a" / "_delta_log" / "_staged_commits").mkdir(parents=True)
    opened(spark, tmp_path / "a").append(batch(spark, 0, 2), "q", 0)
    assert held(archived(spark, str(tmp_path / "a"))) == [0, 1]


def test_of_two_writers_of_one_batch_one_fails_and_it_is_there_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    from spark.archive.table import archived

    table, flag = opened(spark, tmp_path / "a"), tmp_path / "stopped"
    table.append(batch(spark, 0, 2), "q", 0)
    flag.touch()
    failures: list[BaseException] = []

    def stopped() -> None:
        try:
            opened(spark, tmp_path / "a").append(blocking(batch(spark, 2, 4), flag), "q", 1)
        except Exception as error:
            failures.append(error)

    thread = threading.Thread(target=stopped)
    thread.start()
    until((tmp_path / "stopped-reached").exists)
    table.append(batch(spark, 2, 4), "q", 1)
    table.append(batch(spark, 4, 6), "q", 2)
    flag.unlink()
    thread.join(120)
    (failure,) = failures
    assert "DELTA_CONCURRENT_TRANSACTION" in str(failure)
    assert held(archived(spark, str(tmp_path / "a"))) == list(range(6))


def test_a_reader_that_began_before_optimize_and_vacuum_ends_well(
    spark: SparkSession, tmp_path: Path
) -> None:
    from spark.archive.table import archived

    table, notes = opened(spark, tmp_path / "a"), list[str]()
    for number in range(4):
        table.append(batch(spark, number * 10, number * 10 + 10), "q", number)
    reader = archived(spark, str(tmp_path / "a")).select("offset").repartition(4).toLocalIterator()
    files = archived(spark, str(tmp_path / "a")).inputFiles()
    found = [next(reader)["offset"]]
    assert table.optimize(notes.append) >= 8
    table.vacuum(notes.append)
    assert len(archived(spark, str(tmp_path / "a")).inputFiles()) == 2
    found += [row["offset"] for row in reader]
    assert sorted(found) == held(archived(spark, str(tmp_path / "a"))) == list(range(40))
    # And one that has only noted which files there were.
    assert held(spark.read.parquet(*files)) == list(range(40))
    # Files that were replaced longer ago than the table says are deleted.
    spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    try:
        spark.sql(
            f"ALTER TABLE delta.`{tmp_path}/a` SET TBLPROPERTIES "
            "('delta.deletedFileRetentionDuration' = 'interval 0 seconds')"
        )
        table.vacuum(notes.append)
    finally:
        spark.conf.unset("spark.databricks.delta.retentionDurationCheck.enabled")
    assert len(list((tmp_path / "a").glob("topic=*/date=*/*.parquet"))) == 2
    assert held(archived(spark, str(tmp_path / "a"))) == list(range(40))
    assert notes == []


def test_files_are_skipped_by_the_columns_that_people_filter_by(spark: SparkSession, tmp_path: Path) -> None:
    from spark.archive.table import ARCHIVE

    opened(spark, tmp_path / "a").append(batch(spark, 0, 10), "q", 0)
    commits = sorted((tmp_path / "a" / "_delta_log").glob("*.json"))
    actions = [json.loads(line) for path in commits for line in path.read_text().splitlines()]
    stats = [json.loads(each["add"]["stats"]) for each in actions if "add" in each]
    assert stats
    assert all(set(each["minValues"]) == set(ARCHIVE.statistics) for each in stats)


def test_fields_may_come_and_not_change_their_type(spark: SparkSession, tmp_path: Path) -> None:
    from spark.archive.table import archived

    archive = opened(spark, tmp_path / "a")
    archive.append(batch(spark, 0, 1, "named_struct('a', id) AS record"), "q", 0)
    archive.append(batch(spark, 1, 2, "named_struct('a', id, 'b', 'x') AS record"), "q", 1)
    archive.append(batch(spark, 2, 3), "q", 2)
    rows = archived(spark, str(tmp_path / "a")).orderBy("offset").collect()
    assert [row.record and tuple(row.record) for row in rows] == [(0, None), (1, "x"), None]
    with pytest.raises(SchemaError, match=r"'record'.*give it another name"):
        archive.append(batch(spark, 3, 4, "named_struct('a', array(1)) AS record"), "q", 3)
    assert archived(spark, str(tmp_path / "a")).count() == 3


def test_what_isn_t_ours_is_refused_and_left_as_it_is(spark: SparkSession, tmp_path: Path) -> None:
    from spark.base.tables import Layout, Table
    from spark.cdc.changes import STATES

    theirs = {"parquet": "it holds", "delta": "a Delta table that kafka_pubsub didn't make"}
    for form, said in theirs.items():
        path = tmp_path / form
        batch(spark, 0, 2).write.format(form).save(str(path))
        before = listed(path)
        for attempt in (
            lambda path=path: opened(spark, path),
            lambda path=path: Table(spark, str(path), STATES).create(batch(spark, 0, 1), "q"),
        ):
            with pytest.raises(FailedPrecondition, match=said):
                attempt()
        assert listed(path) == before
    opened(spark, tmp_path / "ours").append(batch(spark, 0, 2), "q", 0)
    other = Layout("windows", (), ("offset",))
    with pytest.raises(FailedPrecondition, match="isn't windows of kafka_pubsub: it is an archive"):
        Table(spark, str(tmp_path / "ours"), other).check()
    gone = opened(spark, tmp_path / "gone")
    gone.append(batch(spark, 0, 2), "q", 0)
    shutil.rmtree(tmp_path / "gone")
    with pytest.raises(FailedPrecondition, match="gone was deleted while a job wrote to it"):
        gone.append(batch(spark, 2, 4), "q", 1)
    with pytest.raises(InvalidArgument, match="backtick"):
        opened(spark, tmp_path / "a`b")
    with pytest.raises(NotFound, match="nothing is there"):
        opened(spark, tmp_path / "nothing").read()


def test_all_spellings_of_a_path_and_of_a_name_are_one(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from spark.base.tables import is_name

    # Spark's own working directory is that of its Java process, so the spelling is relative to that.
    here = Path(spark.sparkContext._jvm.java.lang.System.getProperty("user.dir"))  # type: ignore[union-attr]
    relative = Path("../" * (len(here.parts) - 1)) / tmp_path.relative_to("/") / "a"
    places = {
        opened(spark, path).address
        for path in (relative, tmp_path / "a", f"file:{tmp_path}/a", f"{tmp_path}/a/")
    }
    assert len(places) == 1
    spark.sql("CREATE DATABASE IF NOT EXISTS lake")
    assert opened(spark, "lake.orders").address == opened(spark, "spark_catalog.lake.orders").address
    spark.sql("DROP DATABASE lake")
    assert [is_name(each) for each in ("orders", "lake.orders", "c.lake.orders", "./lake.orders")] == [
        False,
        True,
        True,
        False,
    ]


def test_a_table_with_a_name(spark: SparkSession) -> None:
    from spark.archive.table import archived

    spark.sql("CREATE DATABASE IF NOT EXISTS lake")
    try:
        with pytest.raises(NotFound, match=r"lake\.orders isn't an archive .*nothing is there"):
            archived(spark, "lake.orders")
        table = opened(spark, "lake.orders")
        for number in (0, 1, 1):
            table.append(batch(spark, number * 10, number * 10 + 10), "q", number)
        assert held(archived(spark, "spark_catalog.lake.orders")) == list(range(20))
        assert table.optimize(print) >= 4
        assert opened(spark, "lake.orders").query() == "q"
        spark.sql("CREATE TABLE lake.theirs (offset BIGINT) USING delta")
        with pytest.raises(FailedPrecondition, match="didn't make"):
            opened(spark, "lake.theirs")
        with pytest.raises(FailedPrecondition, match=r"there is no schema spark_catalog\.no_such_schema"):
            opened(spark, "no_such_schema.orders")
        with pytest.raises(InvalidArgument, match="can't be a table"):
            opened(spark, "no_such_catalog.lake.orders")
        with pytest.raises(InvalidArgument, match="--checkpoint is missing"):
            _ = table.checkpoint
    finally:
        spark.sql("DROP DATABASE IF EXISTS lake CASCADE")


def test_an_archive_of_many_batches_opens_soon(spark: SparkSession, tmp_path: Path) -> None:
    """Its log is made by this test: a commit for each batch, and a checkpoint as Delta makes one each ten of them.

    No file was ever put together here, so this is more than a real archive of that age has.
    """
    path = tmp_path / "a"
    opened(spark, path).append(batch(spark, 0, 2), "q", 0)
    deltas = spark.sparkContext._jvm.org.apache.spark.sql.delta.DeltaLog  # type: ignore[union-attr]
    deltas.clearCache()
    deltas.forTable(spark._jsparkSession, str(path)).checkpoint()
    multiply(path / "_delta_log")
    taken = []
    for _ in range(5):
        deltas.clearCache()
        began = time.perf_counter()
        # A job's first look, and a reader's.
        table = opened(spark, path)
        assert table.query() == "q"
        found = table.read()
        taken.append(time.perf_counter() - began)
    assert len(found.inputFiles()) == 2 * BATCHES
    assert min(taken) < OPENS_IN, taken
    # The job goes on where it was: the last batch is known.
    log = path / "_delta_log"
    table.append(batch(spark, 0, 2), "q", BATCHES - 1)
    assert not (log / f"{BATCHES + 1:020}.json").exists()
    table.append(batch(spark, 0, 2), "q", BATCHES)
    assert (log / f"{BATCHES + 1:020}.json").exists()


def multiply(log: Path) -> None:
    """Of the commit of a batch, and a checkpoint after it, the log of `BATCHES` batches."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    (checkpoint,) = log.glob("*.checkpoint.parquet")
    table = pq.read_table(checkpoint)
    rows = table.to_pylist(maps_as_pydicts="strict")
    commit = [json.loads(line) for line in (log / f"{1:020}.json").read_text().splitlines()]
    for path in (*log.glob("*.crc"), *log.glob(".*.crc"), checkpoint):
        path.unlink(missing_ok=True)
    adds = [row for row in rows if row["add"] is not None]
    last = BATCHES - 5
    for version in range(2, BATCHES + 1):
        for line in commit:
            if "add" in line:
                line["add"]["path"] = f"{version}-{line['add']['partitionValues']['date']}"
            if "txn" in line:
                line["txn"]["version"] = version - 1
        (log / f"{version:020}.json").write_text("\n".join(map(json.dumps, commit)))
        if version <= last:
            rows += [{**row, "add": {**row["add"], "path": f"{version}-{at}"}} for at, row in enumerate(adds)]
    for row in rows:
        if row["txn"] is not None:
            row["txn"]["version"] = last - 1
    made = log / f"{last:020}.checkpoint.parquet"
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), made)
    size = {"version": last, "size": len(rows), "sizeInBytes": made.stat().st_size}
    (log / "_last_checkpoint").write_text(json.dumps(size))
