"""Prepares messages for a replay: with the same key, body and headers, and marked as replayed.

Rules
1. Reserved headers are left out and two are added. `ps-replayed` says where the message was published first. `ps-id`
   is the same each time that the message is written, so that a repeat is recognised.
2. One task writes all messages of a key, in the order of their offsets.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from kafka_pubsub.model import RESERVED_HEADER_PREFIX

from ..reading.rows import REPLAYED_HEADER

__all__ = ["again", "identity", "without"]

_HEADERS = "array<struct<key:string,value:binary>>"


def identity(name: str) -> Column:
    """Returns the `ps-id` of a message in the replay of this name: the name and the message's topic and offset."""
    return F.concat_ws(
        ":", F.lit(name), "topic", F.col("partition").cast("string"), F.col("offset").cast("string")
    )


def without(messages: DataFrame, target: DataFrame, name: str) -> DataFrame:
    """Returns those of the messages that the replay `name` hasn't written to `target` yet, in the same order."""
    there = target.where(F.col("message_id").startswith(name + ":")).select(F.col("message_id").alias("_id"))
    # The ids are broadcast, because they are at most those of a portion, and a shuffle would change the order.
    told = messages.withColumn("_id", identity(name))
    return told.join(F.broadcast(there), "_id", "left_anti").drop("_id")


def again(messages: DataFrame, name: str, *, ordered: bool = False) -> DataFrame:
    """Makes the key, value and headers of a replay for Spark's sink.

    `ordered` says that each task already has whole partitions, in the order of offsets (default: False).
    """
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
