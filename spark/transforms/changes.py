"""Database changes: the last state of each key, correct when changes come again, late or out of order.

Theory. A change says what a row is now (`{"action": "INSERT" | "UPDATE" | "DELETE", "data": {...}}`, key
`table:row`). Within a partition the order of offsets is the order of the key; so a table that remembers where
each state was published can tell an older change from a newer one, and a replay changes nothing.

Rules
1. A change counts by its origin, so a replayed one counts by where it was published first. Between two
   partitions (a topic that was repartitioned) the later publishing wins.
2. A deleted row stays as a row that says so: without it, a replay would bring it back.
3. What isn't a change is kept beside the table, with its bytes and the reason.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ..tables import Layout

__all__ = ["NEWER", "PROBLEMS", "SAME_ROW", "STATES", "changes", "last_states", "strange"]

#: The table of last states: `key`, `ordering_key`, `deleted`, `data`, `action` and where the change was published.
STATES = Layout(
    "last states", partitions=(), statistics=("ordering_key", "publish_time", "partition", "offset")
)
PROBLEMS = Layout(
    "messages that are no changes", partitions=("topic",), statistics=("publish_time", "partition", "offset")
)
#: How a state (`new`) finds its row (`old`), and when it counts. Texts have statistics, which bytes have not; two keys
#: that differ in bytes that are no text are told apart by the bytes.
SAME_ROW = "old.ordering_key = new.ordering_key AND old.key = new.key"
NEWER = (
    "CASE WHEN new.topic = old.topic AND new.partition = old.partition THEN new.offset > old.offset "
    "ELSE new.publish_time > old.publish_time END"
)


def _told(messages: DataFrame) -> DataFrame:
    text = F.col("data").cast("string")
    action = F.upper(F.get_json_object(text, "$.action"))
    reason = (
        F.when(F.col("key").isNull(), F.lit("has no key: which row does it change?"))
        # A tombstone is how Kafka's own connectors say that a row is gone.
        .when(F.col("data").isNull(), F.lit(None))
        .when(action.isNull(), F.lit("isn't JSON with an action"))
        .when(~action.isin("INSERT", "UPDATE", "DELETE"), F.concat(F.lit("has the action "), action))
        .when((action != "DELETE") & F.get_json_object(text, "$.data").isNull(), F.lit("has no data"))
    )
    deleted = F.col("data").isNull() | (action == "DELETE")
    return (
        messages.withColumn("problem", reason)
        .withColumn("deleted", F.coalesce(deleted, F.lit(False)))
        .withColumn("action", F.coalesce(action, F.lit("DELETE")))
    )


def changes(messages: DataFrame) -> DataFrame:
    """The changes among the messages, with the columns of the table of last states."""
    told = _told(messages).where("problem is null")
    return told.select(
        "key",
        "ordering_key",
        "deleted",
        F.when(~F.col("deleted"), F.get_json_object(F.col("data").cast("string"), "$.data")).alias("data"),
        "action",
        "publish_time",
        F.col("origin.topic").alias("topic"),
        F.col("origin.partition").alias("partition"),
        F.col("origin.offset").alias("offset"),
    )


def strange(messages: DataFrame) -> DataFrame:
    """The messages that are no changes, with `problem`."""
    return _told(messages).where("problem is not null").drop("deleted", "action")


def last_states(found: DataFrame) -> DataFrame:
    """One row a key: its newest change."""
    row = F.struct(*found.columns)
    here = (
        found.groupBy("key", "topic", "partition").agg(F.max_by(row, "offset").alias("row")).select("row.*")
    )
    return (
        here.groupBy("key")
        .agg(F.max_by(F.struct(*here.columns), "publish_time").alias("row"))
        .select("row.*")
    )
