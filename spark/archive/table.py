"""Reads archives, which are Delta tables of topics' messages.

    archived(spark, "/data/archive").where("topic = 'orders' AND date >= '2026-01-14'").show()

Rules
1. An archive belongs to one query: batches of another checkpoint would add the same messages again.
2. Over Spark Connect an archive is read, and nothing else is done with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_pubsub.errors import FailedPrecondition

from ..base.spark_session import check_delta, first_line, is_remote
from ..base.tables import Layout, Table, is_name, kind_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["ARCHIVE", "archive_table", "archived"]

ARCHIVE = Layout(
    "an archive",
    partitions=("topic", "date"),
    statistics=("publish_time", "ordering_key", "partition", "offset", "message_id", "archived_at"),
    sorted_by="ordering_key",
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
