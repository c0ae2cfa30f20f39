"""Messages as they were, once more: the same key, body and headers, marked as a replay.

Rules
1. Headers of ours are left out and two are added: `ps-replayed` says where the message was published, `ps-id`
   is the same at every try, so that a repeat is recognisable, and found.
2. A key's messages are written by one task, in the order in which they lay.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from kafka_pubsub.model import RESERVED_HEADER_PREFIX

from .rows import REPLAYED_HEADER

__all__ = ["again", "identity", "without"]

_HEADERS = "array<struct<key:string,value:binary>>"


def identity(name: str) -> Column:
    """The `ps-id` of a message in the replay of this name: its place in what is replayed."""
    return F.concat_ws(
        ":", F.lit(name), "topic", F.col("partition").cast("string"), F.col("offset").cast("string")
    )


def without(messages: DataFrame, target: DataFrame, name: str) -> DataFrame:
    """Those that aren't among `target`'s messages yet, in the same order."""
    there = target.where(F.col("message_id").startswith(name + ":")).select(F.col("message_id").alias("_id"))
    # Broadcast: a portion's ids at most, and a shuffle would mix up what lies in order.
    told = messages.withColumn("_id", identity(name))
    return told.join(F.broadcast(there), "_id", "left_anti").drop("_id")


def again(messages: DataFrame, name: str, *, ordered: bool = False) -> DataFrame:
    """Key, value and headers, as Spark's sink takes them; `ordered`: each task has whole partitions, by offset."""
    theirs = F.filter(
        F.coalesce("headers", F.array().cast(_HEADERS)),
        lambda h: ~h["key"].startswith(RESERVED_HEADER_PREFIX),
    )
    origin = F.concat_ws(
        ":", "origin.topic", F.col("origin.partition").cast("string"), F.col("origin.offset").cast("string")
    )
    ours = F.array(_header(RESERVED_HEADER_PREFIX + "id", identity(name)), _header(REPLAYED_HEADER, origin))
    found = messages.select(
        "key",
        F.col("data").alias("value"),
        F.concat(theirs, ours).cast(_HEADERS).alias("headers"),
        "partition",
        "offset",
    )
    if ordered:
        return found.select("key", "value", "headers")
    together = found.repartition(F.coalesce(F.xxhash64("key"), F.xxhash64("partition", "offset")))
    return together.sortWithinPartitions("partition", "offset").select("key", "value", "headers")


def _header(name: str, value: Column) -> Column:
    return F.struct(F.lit(name).alias("key"), value.cast("binary").alias("value"))
