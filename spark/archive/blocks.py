"""Compares an archive with the log by blocks of offsets, and row by row only in blocks that differ.

Theory. Two sets of ten million rows needn't be joined to find that they are equal. Each row becomes a hash of its
offset and bytes, and a block of offsets becomes a count and the exclusive or of its hashes. Blocks with the same count
and sum hold the same rows; the rows of other blocks are compared one by one.

Rules
1. Only offsets that both can have are compared: from the log's beginning up to the archive's progress.
2. Each finding names an offset: gap (not in the archive), duplicate (more than once in the archive), reorder (the
   archive has a message there that was published at another offset), altered (the archive has a message there that was
   never published), foreign (the log has no message there).
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from kafka_pubsub.model import TopicPartition

__all__ = ["BLOCK", "compared", "content_of", "within"]

#: How many offsets a block has: a differing block is read again, and a hundred million offsets are 10,000 blocks.
BLOCK = 10_000
_PLACE = ["topic", "partition", "offset"]
_BLOCK = ["topic", "partition", "block"]


def within(messages: DataFrame, ranges: Mapping[TopicPartition, tuple[int, int]]) -> DataFrame:
    """Returns the messages whose offset is in the range of their partition; the end of a range isn't included."""
    if not ranges:
        return messages.where(F.lit(False))
    spark = messages.sparkSession
    bounds = [(topic, number, start, end) for (topic, number), (start, end) in ranges.items()]
    table = spark.createDataFrame(bounds, "topic string, partition int, _start bigint, _end bigint")
    joined = messages.join(F.broadcast(table), ["topic", "partition"])
    return joined.where("offset >= _start AND offset < _end").drop("_start", "_end")


def compared(log: DataFrame, archive: DataFrame) -> DataFrame:
    """Finds where the archive differs from the log.

    Both have the columns of `messages`; `content` may take the place of the columns that `content_of` hashes.
    """
    ours, theirs = _hashed(log), _hashed(archive)
    differing = _differing(_blocks(ours), _blocks(theirs))
    # Few blocks differ as a rule. Then reading both again costs no more than reading them for the blocks did.
    places = differing.localCheckpoint()
    return _findings(_inside(ours, places), _inside(theirs, places))


def content_of() -> Column:
    """Returns the hash of a message's bytes by which messages are compared."""
    return F.xxhash64("key", "data", "headers")


def _hashed(messages: DataFrame) -> DataFrame:
    content = F.col("content") if "content" in messages.columns else content_of()
    return messages.select(
        *_PLACE,
        "key",
        content.alias("content"),
        F.xxhash64("topic", "partition", "offset", content).alias("whole"),
        F.floor(F.col("offset") / BLOCK).alias("block"),
    )


def _blocks(hashed: DataFrame) -> DataFrame:
    return hashed.groupBy(*_BLOCK).agg(F.count("*").alias("rows"), F.bit_xor("whole").alias("sum"))


def _differing(ours: DataFrame, theirs: DataFrame) -> DataFrame:
    left, right = ours.alias("ours"), theirs.alias("theirs")
    joined = left.join(right, _BLOCK, "full_outer")
    same = F.col("ours.rows").eqNullSafe(F.col("theirs.rows")) & F.col("ours.sum").eqNullSafe(
        F.col("theirs.sum")
    )
    return joined.where(~same).select(*_BLOCK)


def _inside(hashed: DataFrame, places: DataFrame) -> DataFrame:
    return hashed.join(F.broadcast(places), _BLOCK, "left_semi")


def _findings(log: DataFrame, archive: DataFrame) -> DataFrame:
    kept = archive.groupBy(*_PLACE).agg(
        F.count("*").alias("times"), F.first("content").alias("held"), F.first("key").alias("held_key")
    )
    joined = log.select(*_PLACE, "key", "content").join(kept, _PLACE, "full_outer")
    elsewhere = log.groupBy("topic", F.col("content").alias("held")).agg(
        F.min("offset").alias("published_at")
    )
    told = joined.join(elsewhere, ["topic", "held"], "left")
    number = F.col("published_at").cast("string")
    kinds = F.array(
        _case(F.col("times").isNull(), "gap", F.lit("isn't in the archive")),
        _case(F.col("content").isNull(), "foreign", F.lit("the log has no such message")),
        _case(F.col("times") > 1, "duplicate", F.concat(F.lit("is there "), F.col("times"), F.lit(" times"))),
        _case(
            (F.col("content") != F.col("held")) & number.isNotNull(),
            "reorder",
            F.concat(F.lit("holds the message that was published at "), number),
        ),
        _case((F.col("content") != F.col("held")) & number.isNull(), "altered", F.lit("holds other bytes")),
    )
    found = told.withColumn("finding", F.explode(F.filter(kinds, lambda each: each.isNotNull())))
    key = F.coalesce("key", "held_key").alias("key")
    return found.select("finding.kind", *_PLACE, key, "finding.said")


def _case(when: Column, kind: str, said: Column) -> Column:
    return F.when(when, F.struct(F.lit(kind).alias("kind"), said.cast("string").alias("said")))
