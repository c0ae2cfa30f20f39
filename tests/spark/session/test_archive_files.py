"""An archive of Parquet files: a batch is there once, wherever it is killed; small files; fields that come."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kafka_pubsub import AlreadyExists, SchemaError
from tests.spark.session.support import KilledHere, crash_at

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from spark.archives import ParquetArchive


def batch(spark: SparkSession, first: int, last: int, more: str = "") -> DataFrame:
    days = "CASE WHEN id % 2 = 0 THEN DATE '2026-01-14' ELSE DATE '2026-01-15' END AS date"
    columns = ["id AS offset", "'7' AS topic", days, *([more] if more else [])]
    return spark.range(first, last, 1, 2).selectExpr(*columns)


def opened(spark: SparkSession, path: Path) -> ParquetArchive:
    from spark.archives import ParquetArchive, open_archive

    found = open_archive(spark, str(path), "parquet")
    assert isinstance(found, ParquetArchive)
    return found


def held(frame: DataFrame) -> list[int]:
    return sorted(row["offset"] for row in frame.select("offset").collect())


#: Each call that changes something, and the last one that still leaves the batch out.
MOMENTS = [("delete", 1, False), ("rename", 1, False), ("rename", 3, False), ("create", 1, False)]


@pytest.mark.parametrize(("method", "call", "there"), MOMENTS)
def test_a_batch_that_was_killed_is_there_once_after_the_next_start(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, call: int, there: bool
) -> None:
    from spark.archives import archived
    from spark.files import Files

    opened(spark, tmp_path).append(batch(spark, 0, 10), "q", 0)
    with monkeypatch.context() as patch:
        patch.setattr(Files, method, crash_at(call, getattr(Files, method)))
        with pytest.raises(KilledHere):
            opened(spark, tmp_path).append(batch(spark, 10, 20), "q", 1)
    assert held(archived(spark, str(tmp_path))) == list(range(20 if there else 10))
    again = opened(spark, tmp_path)
    # The same batch again, and again; and the one that was in.
    for first, number in ((10, 1), (10, 1), (0, 0)):
        again.append(batch(spark, first, first + 10), "q", number)
    assert held(archived(spark, str(tmp_path))) == list(range(20))
    assert held(spark.read.parquet(str(tmp_path))) == list(range(20))


def test_two_writers_can_t_both_take_a_number(spark: SparkSession, tmp_path: Path) -> None:
    first, second = opened(spark, tmp_path), opened(spark, tmp_path)
    first.append(batch(spark, 0, 2), "q", 0)
    with pytest.raises(AlreadyExists, match="is another job writing there"):
        second.append(batch(spark, 2, 4), "other", 0)


def test_small_files_are_put_together_wherever_it_is_killed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from spark.archives import archived
    from spark.files import Files

    monkeypatch.setattr("spark.archives.MANY", 4)
    archive = opened(spark, tmp_path)
    for number in range(2):
        archive.append(batch(spark, number * 10, number * 10 + 10), "q", number)
    assert len(list(tmp_path.glob("date=*/topic=*/*.parquet"))) == 8
    for method, call in (("rename", 1), ("create", 1), ("delete", 4), ("delete", 6)):
        with monkeypatch.context() as patch:
            patch.setattr(Files, method, crash_at(call, getattr(Files, method)))
            with suppress(KilledHere):
                opened(spark, tmp_path).compact()
        assert held(archived(spark, str(tmp_path))) == list(range(20)), (method, call)
    last = opened(spark, tmp_path)
    last.compact()
    last.tidy()
    assert len(list(tmp_path.glob("date=*/topic=*/*.parquet"))) == 2
    assert held(archived(spark, str(tmp_path))) == held(spark.read.parquet(str(tmp_path))) == list(range(20))
    row = archived(spark, str(tmp_path)).first()
    assert row is not None
    # What looks like a number in a directory's name stays a text.
    assert row.topic == "7"


def test_fields_may_come_and_not_change_their_type(spark: SparkSession, tmp_path: Path) -> None:
    from spark.archives import archived

    archive = opened(spark, tmp_path)
    archive.append(batch(spark, 0, 1, "named_struct('a', id) AS record"), "q", 0)
    archive.append(batch(spark, 1, 2, "named_struct('a', id, 'b', 'x') AS record"), "q", 1)
    archive.append(batch(spark, 2, 3), "q", 2)
    rows = archived(spark, str(tmp_path)).orderBy("offset").collect()
    assert [row.record and tuple(row.record) for row in rows] == [(0, None), (1, "x"), None]
    with pytest.raises(SchemaError, match=r"field record\.a is bigint in the archive and string now"):
        archive.append(batch(spark, 3, 4, "named_struct('a', 'text') AS record"), "q", 3)
    assert archived(spark, str(tmp_path)).count() == 3
