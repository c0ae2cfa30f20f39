"""Reads archives, which are Delta tables of topics' messages, and copies parts of them to plain files.

    archived(spark, "/data/archive").where("topic = 'orders' AND date >= '2026-01-14'").show()

Rules
1. An archive belongs to one query: batches of another checkpoint would add the same messages again.
2. `export` writes its copy only to a directory that is empty or doesn't exist.
3. Over Spark Connect an archive is read, and nothing else is done with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from kafka_pubsub.errors import FailedPrecondition
from kafka_pubsub.lane_names import every_name

from ..base.files import Files
from ..base.spark_session import check_delta, first_line, is_remote
from ..base.tables import Layout, Table, is_name, kind_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["ARCHIVE", "archive_table", "archived", "export"]

ARCHIVE = Layout(
    "an archive",
    partitions=("topic", "date"),
    statistics=("publish_time", "ordering_key", "partition", "offset", "message_id", "archived_at"),
)


def archive_table(spark: SparkSession, where: str, *, option: str = "") -> Table:
    """Returns the table of an archive, which may not exist yet; `FailedPrecondition` if something else is there.

    `option` is the command's option that gave `where`, for errors (default: none).
    """
    found = Table(spark, where, ARCHIVE, option=option)
    found.check()
    return found


def archived(spark: SparkSession, where: str) -> DataFrame:
    """Returns the messages of an archive, each once: the columns of `messages`, `archived_at`, `date` and `topic_id`.

    `topic_id` is Kafka's id of the topic (of its lane): of a topic that was deleted and made again the archive may hold
    two messages with one `message_id`, and their `topic_id` tells them apart. It is null for what an earlier version
    has archived. `where` is a path or a name (`schema.table`, `catalog.schema.table`). Filter by `topic` and `date`
    (UTC) first: Spark then reads only their files. Filters by `publish_time`, `ordering_key`, `partition` and `offset`
    skip files as well.

    Example:
        archived(spark, "/data/archive").where("topic = 'orders' AND date >= '2026-01-14'").show()
    """
    return _archived_there(spark, where) if is_remote(spark) else archive_table(spark, where).read()


def _archived_there(spark: SparkSession, where: str) -> DataFrame:
    """Reads an archive over Spark Connect, where no file can be looked at."""
    check_delta(spark)
    named = where if is_name(where) else f"delta.`{where}`"
    try:
        found = spark.sql(f"SHOW TBLPROPERTIES {named}").collect()
    except Exception as error:
        raise FailedPrecondition(f"{where} isn't an archive of kafka_pubsub: {first_line(error)}") from error
    if kind_of({row.key: row.value for row in found}) != ARCHIVE.kind:
        raise FailedPrecondition(f"{where} isn't an archive of kafka_pubsub: it is another table")
    return spark.table(named)


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
    """Copies messages of an archive to Parquet files by topic and date, and returns how many it copied.

    `topics` are the topics to copy, with their lanes (default: all). Only messages that were published at or after
    `since` and before `until` are copied (default: all). `option` is as for `archive_table`.
    """
    from pyspark.sql import functions as F

    target = Files(spark, to)
    if names := target.names():
        raise FailedPrecondition(
            f"{to} holds {', '.join(names[:3])}: export to a directory that is empty or not there"
        )
    found = archive_table(spark, where, option=option).read()
    if topics:
        found = found.where(F.col("topic").isin([name for topic in topics for name in every_name(topic)]))
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
