"""Turns database changes into the last state of each key, also if changes come again, late or out of order.

Theory. A change says what a row is now: `{"action": "INSERT" | "UPDATE" | "DELETE", "data": {...}}`, Debezium's
`{"op": "c" | "u" | "d" | "r", "after": {...}}`, or the row itself; the key says which row. Within a partition the
order of offsets is the order of the key. So the table stores where each state was published, which tells an older
change from a newer one, and a replay changes nothing.

Rules
1. Changes are compared by their origin, so a replayed change counts as of its first publishing. Between two partitions
   (of a topic that was repartitioned), two lanes, or a topic and the one that was made again under its name, the later
   time of publishing wins.
   Where changes have a sequence (a number of the database, --sequence-by), the greater one wins, wherever they lie.
2. A deleted row stays in the table with a mark: without it, a replay would insert the row again.
3. A message that isn't a change is rejected, with its bytes and the reason.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from kafka_pubsub.errors import InvalidArgument

from ..base.spark_session import first_line
from ..base.tables import Layout
from ..reading.decoding import by_json

__all__ = [
    "NEWER",
    "NEWER_BY_SEQUENCE",
    "SAME_ROW",
    "STATES",
    "Envelope",
    "last_states",
    "sequenced",
    "states",
    "told",
]

#: The form of a change: with an action, in Debezium's form, or the row itself.
Envelope = Literal["action", "debezium", "row"]

#: The table of last states: `key`, `ordering_key`, `deleted`, `data`, `action` and where the change was published.
#: `topic_id` is Kafka's id of that topic; null where it isn't known. `sequence` is there if the job has --sequence-by.
STATES = Layout(
    "last states", partitions=(), statistics=("ordering_key", "publish_time", "partition", "offset")
)
#: The conditions by which a state (`new`) finds its row (`old`), and replaces it. Delta skips files by the key as text,
#: because columns of bytes have no statistics; the bytes distinguish keys that aren't valid text.
SAME_ROW = "old.ordering_key = new.ordering_key AND old.key = new.key"
#: `NEWER_BY_SEQUENCE` is for changes with a sequence.
NEWER = (
    "CASE WHEN new.topic = old.topic AND new.partition = old.partition "
    "AND coalesce(new.topic_id, '') = coalesce(old.topic_id, new.topic_id, '') THEN new.offset > old.offset "
    "ELSE new.publish_time > old.publish_time END"
)
NEWER_BY_SEQUENCE = (
    f"CASE WHEN new.sequence <> old.sequence THEN new.sequence > old.sequence ELSE {NEWER} END"
)


def told(
    messages: DataFrame, envelope: Envelope = "action", schema: str | StructType | None = None
) -> DataFrame:
    """Adds `action`, `after` (the row as JSON), `deleted`, and `problem` (why it isn't a change) to messages.

    `envelope` is the form of the changes (default "action"). `schema` are the row's columns, which are then in `record`
    (default: there is no `record`).
    """
    text = F.col("data").cast("string")
    action, after, said = _READERS[envelope](text)
    reason = (
        F.when(F.col("key").isNull(), F.lit("has no key: which row does it change?"))
        # Kafka's own connectors write a tombstone for a row that was deleted.
        .when(F.col("data").isNull(), F.lit(None))
        .when(action.isNull(), said)
        .when((action != "DELETE") & after.isNull(), F.lit("has no data"))
    )
    deleted = F.coalesce(F.col("data").isNull() | (action == "DELETE"), F.lit(False))
    found = (
        messages.withColumn("deleted", deleted)
        .withColumn("after", F.when(~deleted, after))
        .withColumn("action", F.coalesce(action, F.lit("DELETE")))
    )
    if schema is None:
        return found.withColumn("problem", reason)
    return by_json(found, F.col("after"), schema).withColumn("problem", F.coalesce(reason, "problem"))


def sequenced(found: DataFrame, expression: str) -> DataFrame:
    """Adds `sequence`, by a SQL expression over what `told` returned; a change without one gets a `problem`."""
    try:
        numbered = found.withColumn("sequence", F.expr(expression)).withColumn(
            "sequence", F.col("sequence").try_cast("bigint")
        )
    except Exception as error:
        raise InvalidArgument(
            f"--sequence-by {expression!r} isn't an expression over a change: {first_line(error)}"
        ) from error
    said = F.when(F.col("sequence").isNull(), F.lit("has no number by --sequence-by"))
    return numbered.withColumn("problem", F.coalesce("problem", said))


def _by_action(text: Column) -> tuple[Column, Column, Column]:
    told = F.upper(F.get_json_object(text, "$.action"))
    known = F.when(told.isin("INSERT", "UPDATE", "DELETE"), told)
    said = F.coalesce(F.concat(F.lit("has the action "), told), F.lit("isn't JSON with an action"))
    return known, F.get_json_object(text, "$.data"), said


def _by_debezium(text: Column) -> tuple[Column, Column, Column]:
    # With schemas in its messages, Debezium puts the change into `payload`.
    change = F.coalesce(F.get_json_object(text, "$.payload"), text)
    told = F.get_json_object(change, "$.op")
    known = (
        F.when(told.isin("c", "r"), F.lit("INSERT")).when(told == "u", "UPDATE").when(told == "d", "DELETE")
    )
    said = F.coalesce(F.concat(F.lit("has the op "), told), F.lit("isn't JSON with an op"))
    return known, F.get_json_object(change, "$.after"), said


def _by_row(text: Column) -> tuple[Column, Column, Column]:
    row = F.when(F.ltrim(text).startswith("{"), F.get_json_object(text, "$"))
    return F.when(row.isNotNull(), F.lit("UPDATE")), row, F.lit("isn't a JSON object")


_READERS: dict[Envelope, Callable[[Column], tuple[Column, Column, Column]]] = {
    "action": _by_action,
    "debezium": _by_debezium,
    "row": _by_row,
}


def states(found: DataFrame, topic_id: Column) -> DataFrame:
    """Selects the columns of the table of last states from what `told` returned.

    `topic_id` is the id of the topic in which a change was published. Messages with a `problem` must have been left
    out before.
    """
    sequence = ["sequence"] if "sequence" in found.columns else []
    return found.select(
        "key",
        "ordering_key",
        "deleted",
        F.col("after").alias("data"),
        "action",
        "publish_time",
        F.col("origin.topic").alias("topic"),
        F.col("origin.partition").alias("partition"),
        F.col("origin.offset").alias("offset"),
        topic_id.alias("topic_id"),
        *sequence,
    )


def last_states(found: DataFrame) -> DataFrame:
    """Returns one row for each key: its newest change."""
    row = F.struct(*found.columns)
    if "sequence" in found.columns:
        # Two changes of one sequence are one change that was published twice, or lie in one partition.
        newest = F.max_by(row, F.struct("sequence", "publish_time", "offset"))
        return found.groupBy("key").agg(newest.alias("row")).select("row.*")
    here = (
        found.groupBy("key", "topic", "topic_id", "partition")
        .agg(F.max_by(row, "offset").alias("row"))
        .select("row.*")
    )
    return (
        here.groupBy("key")
        .agg(F.max_by(F.struct(*here.columns), "publish_time").alias("row"))
        .select("row.*")
    )
