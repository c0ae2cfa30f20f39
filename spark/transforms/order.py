"""What is wrong with a log's order: reorders, gaps and duplicates of numbered messages, keys in two places.

Theory. A log's own order can't be wrong; what can is that it isn't the publisher's. So whoever publishes
numbers each key's messages (1, 2, 3 ...), in an attribute or in the body, and a SQL expression reads the
number.

Rules
1. In the order of the log, a number below one that came before is a reorder. It is named where it lies.
2. In the order of the numbers, one that comes twice is a duplicate and one that is missing is a gap; a message
   that only came late is neither.
3. One shuffle by key and two sorts, all of which can spill: memory doesn't grow with the log.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from kafka_pubsub.errors import InvalidArgument

from ..spark_session import first_line
from .partitioner import partition_of

__all__ = ["FINDINGS", "keys_out_of_place", "numbered", "out_of_order"]

#: The columns of everything that an audit finds.
FINDINGS = ("kind", "topic", "partition", "offset", "key", "said")


def numbered(messages: DataFrame, expression: str) -> DataFrame:
    """The keyed messages with their `number`, by a SQL expression over the columns of `messages`."""
    try:
        found = messages.withColumn("number", F.expr(f"try_cast({expression} as bigint)"))
    except Exception as error:
        raise InvalidArgument(
            f"--sequence {expression!r} isn't an expression over a message: {first_line(error)}"
        ) from error
    return found.where("key is not null").select("topic", "partition", "offset", "key", "number")


def out_of_order(messages: DataFrame) -> DataFrame:
    """Findings in what `numbered` made: kinds reorder, gap, duplicate and unnumbered."""
    by_number = Window.partitionBy("topic", "key").orderBy("number", "partition", "offset")
    before = (
        Window.partitionBy("topic", "key", "partition")
        .orderBy("offset")
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    previous, number = F.lag("number").over(by_number), F.col("number")
    told = messages.withColumn("previous", previous).withColumn("highest", F.max("number").over(before))
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
            number > F.col("previous") + 1,
            _said("gap", "numbers ", F.col("previous") + 1, " to ", number - 1, " are missing"),
        ),
    )
    found = told.withColumn("finding", F.explode(F.filter(kinds, lambda each: each.isNotNull())))
    return found.select("finding.kind", "topic", "partition", "offset", F.col("key"), "finding.said")


def _said(kind: str, *parts: str | Column) -> Column:
    texts = [F.lit(part) if isinstance(part, str) else part.cast("string") for part in parts]
    return F.struct(F.lit(kind).alias("kind"), F.concat(*texts).alias("said"))


def keys_out_of_place(messages: DataFrame, partitions: int) -> DataFrame:
    """Findings about keys of a topic with so many partitions.

    split: a key that lies in more than one partition has no order between them. misplaced: it lies in one, but
    publishing puts it into another.
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
