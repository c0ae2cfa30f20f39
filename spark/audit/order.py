"""Finds reorders, gaps and duplicates of numbered messages, and keys that lie in a wrong partition.

Theory. A log's own order can't be wrong, but it may differ from the publisher's order. So the publisher numbers each
key's messages (1, 2, 3 ...), in an attribute or in the body, and a SQL expression reads the number.

Rules
1. In the order of the log, a number below an earlier number is a reorder. The finding names its offset. Each lane of a
   topic is a log of its own: a message that goes before those of another lane isn't one.
2. In the order of the numbers, over all lanes, a number that comes twice is a duplicate and a missing number is a gap.
   A message that only came late is neither. A key whose smallest number is greater than the one that keys begin with
   has a gap as well; that is only so if nothing was deleted from the log.
3. The search takes one shuffle by key and two sorts, all of which can spill: its memory doesn't grow with the log.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from kafka_pubsub.errors import InvalidArgument

from ..base.spark_session import first_line
from .partitioner import partition_of

__all__ = ["FINDINGS", "highest", "keys_out_of_place", "number_of", "numbered", "out_of_order"]

#: The columns of an audit's findings.
FINDINGS = ("kind", "topic", "partition", "offset", "key", "said")
_NUMBERED = ("topic", "partition", "offset", "key", "number")


def number_of(messages: DataFrame, expression: str) -> Column:
    """Returns the number of a message, by a SQL expression over the columns of `messages`."""
    try:
        number = F.expr(f"try_cast({expression} as bigint)")
        messages.select(number)
    except Exception as error:
        raise InvalidArgument(
            f"--sequence {expression!r} isn't an expression over a message: {first_line(error)}"
        ) from error
    return number


def numbered(messages: DataFrame, expression: str) -> DataFrame:
    """Returns the messages that have a key, with their `number`."""
    found = messages.withColumn("number", number_of(messages, expression))
    return found.where("key is not null").select(*_NUMBERED)


def out_of_order(
    messages: DataFrame, before: DataFrame | None = None, *, first: int | None = None
) -> DataFrame:
    """Finds reorders, gaps, duplicates and messages without a number in what `numbered` made of one topic.

    `before` has the highest number of each key in each lane, with its topic and partition, of messages that were
    checked before (default: there are none). `first` is the number that each key begins with (default: any).
    """
    floor = F.lit(None).cast("bigint")
    if before is not None:
        messages = _after(messages, before)
        floor = F.max(F.when(F.col("offset") < 0, F.col("number"))).over(Window.partitionBy("key"))
    by_number = Window.partitionBy("key").orderBy(
        "number", F.col("offset") >= 0, "topic", "partition", "offset"
    )
    earlier = (
        Window.partitionBy("topic", "key", "partition")
        .orderBy("offset")
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    previous, number = F.lag("number").over(by_number), F.col("number")
    told = messages.withColumn("previous", previous).withColumn("highest", F.max("number").over(earlier))
    told = told.withColumn("floor", floor)
    kinds = F.array(
        F.when(
            number.isNull(), F.struct(F.lit("unnumbered").alias("kind"), F.lit("has no number").alias("said"))
        ),
        F.when(number == F.col("previous"), _said("duplicate", "number ", number, " comes twice")),
        F.when(
            (number < F.col("highest")) & (F.col("previous").isNull() | (number != F.col("previous"))),
            _said("reorder", "number ", number, " comes after ", F.col("highest")),
        ),
        F.when(
            (number > F.col("previous") + 1) & (F.col("previous") >= F.coalesce("floor", "previous")),
            _said("gap", "numbers ", F.col("previous") + 1, " to ", number - 1, " are missing"),
        ),
        F.when(
            F.col("previous").isNull() & (number > F.lit(first)),
            _said("gap", "numbers ", F.lit(first), " to ", number - 1, " are missing"),
        ),
    )
    told = told.where(F.col("offset") >= 0)
    found = told.withColumn("finding", F.explode(F.filter(kinds, lambda each: each.isNotNull())))
    return found.select("finding.kind", "topic", "partition", "offset", F.col("key"), "finding.said")


def _after(messages: DataFrame, before: DataFrame) -> DataFrame:
    """Adds to the messages a row for each of their keys that comes before them and has the key's number so far."""
    keys = messages.select("key").distinct()
    known = before.join(keys, "key", "left_semi").withColumn("offset", F.lit(-1).cast("bigint"))
    return messages.select(*_NUMBERED).unionByName(known.select(*_NUMBERED))


def highest(messages: DataFrame) -> DataFrame:
    """Returns the highest number of each key in what `numbered` made, and the partition in which it lies."""
    return (
        messages.where("number is not null")
        .groupBy("topic", "key")
        .agg(F.max("number").alias("number"), F.max_by("partition", "number").alias("partition"))
    )


def _said(kind: str, *parts: str | Column) -> Column:
    texts = [F.lit(part) if isinstance(part, str) else part.cast("string") for part in parts]
    return F.struct(F.lit(kind).alias("kind"), F.concat(*texts).alias("said"))


def keys_out_of_place(messages: DataFrame, partitions: int) -> DataFrame:
    """Finds keys that lie in other partitions than they should, in a topic with so many partitions.

    The kind of finding is split if a key lies in several partitions, between which it has no order. It is misplaced if
    the key lies in one partition, but publishing puts it into another.
    """
    lies_in = F.sort_array(F.collect_set("partition"))
    found = (
        messages.where("key is not null")
        .groupBy("topic", "key")
        .agg(
            lies_in.alias("partitions"),
            F.min("partition").alias("partition"),
            F.min("offset").alias("offset"),
        )
        .withColumn("expected", partition_of(F.col("key"), partitions))
    )
    split = _said(
        "split", "lies in partitions ", F.array_join(F.col("partitions").cast("array<string>"), ", ")
    )
    misplaced = _said(
        "misplaced", "lies in partition ", F.col("partition"), ", publishing puts it into ", F.col("expected")
    )
    told = F.when(F.size("partitions") > 1, split).when(F.col("partition") != F.col("expected"), misplaced)
    return (
        found.withColumn("finding", told)
        .where("finding is not null")
        .select("finding.kind", "topic", "partition", "offset", "key", "finding.said")
    )
