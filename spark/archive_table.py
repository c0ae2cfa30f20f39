"""Archives: what topics held, as a Delta table.

    archived(spark, "/data/archive").where("topic = 'orders' AND date >= '2026-01-14'").show()

Rules
1. An archive belongs to one query: batches of another checkpoint would bring the same messages again.
2. A plain copy of a range (`export`) is written to a directory that is empty or not there.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from kafka_pubsub.errors import FailedPrecondition

from .files import Files
from .remote_files import files_below
from .tables import Layout, Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["ARCHIVE", "archive_table", "archived", "export"]

ARCHIVE = Layout(
    "an archive",
    partitions=("topic", "date"),
    statistics=("publish_time", "ordering_key", "partition", "offset", "message_id", "archived_at"),
)


def archive_table(spark: SparkSession, where: str, *, option: str = "") -> Table:
    """The table of an archive, which may not be there yet; `FailedPrecondition` if something else is there.

    `option` is the command's option that gave `where`: errors name it.
    """
    found = Table(spark, where, ARCHIVE, option=option)
    found.check()
    return found


def archived(spark: SparkSession, where: str) -> DataFrame:
    """What an archive holds, each message once: the columns of `messages`, `archived_at` and `date`.

    `where` is a path or a name (`schema.table`, `catalog.schema.table`). Filter by `topic` and `date` (UTC) first:
    only their files are read. `publish_time`, `ordering_key`, `partition` and `offset` skip files as well.

    Example:
        archived(spark, "/data/archive").where("topic = 'orders' AND date >= '2026-01-14'").show()
    """
    return archive_table(spark, where).read()


def export(
    spark: SparkSession,
    where: str,
    to: str,
    *,
    topics: Sequence[str] = (),
    since: datetime | None = None,
    until: datetime | None = None,
    option: str = "",
) -> int:
    """Copies messages of an archive to Parquet files by topic and date; returns how many.

    `topics`: only these (default: all). `since` and `until`: only messages published from then on, and before then
    (default: all). `option` is as for `archive_table`.
    """
    from pyspark.sql import functions as F

    target = files_below(spark, to)
    if names := target.names():
        raise FailedPrecondition(
            f"{to} holds {', '.join(names[:3])}: export to a directory that is empty or not there"
        )
    found = archive_table(spark, where, option=option).read()
    if topics:
        found = found.where(F.col("topic").isin(*topics))
    if since is not None:
        # The archive's dates are UTC, whatever the session's time zone is.
        day = F.lit(since.astimezone(UTC).date())
        found = found.where((F.col("date") >= day) & (F.col("publish_time") >= F.lit(since)))
    if until is not None:
        day = F.lit(until.astimezone(UTC).date())
        found = found.where((F.col("date") <= day) & (F.col("publish_time") < F.lit(until)))
    found.write.partitionBy(*ARCHIVE.partitions).parquet(target.root)
    return found.sparkSession.read.parquet(target.root).count() if _has_files(target) else 0


def _has_files(target: Files) -> bool:
    return any(name.startswith("topic=") for name in target.names())
