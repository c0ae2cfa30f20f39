"""What a subscription has done with a topic: acked, waiting, parked, dead; and whether that can be true.

Theory. A message that was handed over is in one place: finished by the commit of the home topic (position and
map), or unfinished there, or moved to the retry topic, or dead. The commits and the two other topics say which,
so that anybody can look, while the subscription runs.

Rules
1. What is read at different moments may contradict itself though nothing is wrong. So ends are taken before the
   commits, what lies below them counts as parked or dead, and what lies behind them only excuses.
2. A record in the retry topic is unfinished when neither the retry partition's position nor its map says
   otherwise; commands of ours are no messages.
3. What was replayed on purpose comes late on purpose: it isn't held against the order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from kafka_pubsub.core import ack_map
from kafka_pubsub.core.retry_record import Why
from kafka_pubsub.model import Committed, TopicPartition

from .order import FINDINGS
from .rows import header_text, is_retry, retry_number

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Positions", "dead_letters", "finished", "judged", "parked", "positions", "unreadable"]


class Positions(NamedTuple):
    """One topic's commits of a group as a small table: topic, partition, position, runs."""

    table: DataFrame
    #: Partitions whose metadata can't be read: acks above the position are lost.
    broken: Sequence[TopicPartition]


def positions(
    spark: SparkSession, topic: str, commits: Mapping[TopicPartition, Committed], copy: Mapping[int, int]
) -> Positions:
    """The commits of `topic`; where there is none, the catalog's copy."""
    known = {at.partition: found for at, found in commits.items() if at.topic == topic}
    rows, broken = [], []
    for number in sorted({*known, *copy}):
        found = known.get(number, Committed(copy.get(number), ""))
        offset = 0 if found.offset is None else found.offset
        said = ack_map.decode(found.metadata, offset) if found.metadata else None
        if found.metadata and said is None:
            broken.append(TopicPartition(topic, number))
        runs = [] if said is None else [(int(start), int(end)) for start, end in said.runs]
        rows.append((topic, number, offset, runs))
    schema = "topic string, partition int, position bigint, runs array<struct<start:bigint,end:bigint>>"
    return Positions(spark.createDataFrame(rows, schema), broken)


def unreadable(found: Positions) -> list[tuple[str, str, int, int, None, str]]:
    """Findings for metadata that isn't ours."""
    said = "the commit's metadata isn't ours or damaged: acks above the position are lost and come again"
    return [("metadata", at.topic, at.partition, -1, None, said) for at in found.broken]


def finished(messages: DataFrame, found: Positions) -> DataFrame:
    """The messages with `finished`: what the commits say of their offset."""
    joined = messages.join(F.broadcast(found.table), ["topic", "partition"], "left")
    offset = F.col("offset")
    in_run = F.exists("runs", lambda run: (offset >= run["start"]) & (offset < run["end"]))
    # The map is looked at only above the position, where few messages are.
    said = F.when(offset < F.col("position"), F.lit(True)).otherwise(F.coalesce(in_run, F.lit(False)))
    return joined.withColumn("finished", F.coalesce(said, F.lit(False))).drop("position", "runs")


def parked(retry_records: DataFrame, found: Positions, ends: Mapping[TopicPartition, int]) -> DataFrame:
    """Unfinished messages of a retry topic: their origin, and `seen`: whether they count (rule 1)."""
    mine = finished(retry_records.where(is_retry()), found).where("NOT finished")
    return mine.where(retry_number("why") != int(Why.RELEASE)).select(
        retry_number("partition").cast("int").alias("partition"),
        retry_number("origin").alias("offset"),
        "key",
        retry_number("attempt").alias("attempt"),
        retry_number("why").alias("why"),
        _below(ends).alias("seen"),
    )


def dead_letters(
    records: DataFrame, topic: str, subscription: str, ends: Mapping[TopicPartition, int]
) -> DataFrame:
    """The dead letters of one subscription: their origin, the reason, and `seen`."""
    mine = records.where(
        (header_text("ps-dead-topic") == topic) & (header_text("ps-dead-subscription") == subscription)
    )
    return mine.select(
        header_text("ps-dead-partition").cast("int").alias("partition"),
        header_text("ps-dead-offset").cast("bigint").alias("offset"),
        "key",
        header_text("ps-dead-reason").alias("reason"),
        _below(ends).alias("seen"),
    )


def _below(ends: Mapping[TopicPartition, int]) -> Column:
    entries: list[Column] = []
    for place, end in ends.items():
        entries += [F.lit(f"{place.topic}:{place.partition}"), F.lit(end)]
    if not entries:
        return F.lit(False)
    noted = F.create_map(*entries)[F.concat_ws(":", "topic", F.col("partition").cast("string"))]
    return F.coalesce(F.col("offset") < noted, F.lit(False))


def judged(
    topic: str, home: DataFrame, waiting_away: DataFrame, dead: DataFrame, *, ordered: bool
) -> DataFrame:
    """Findings: in two places at once, and (ordered) acked although an earlier message of the key isn't done.

    `home` has `finished`; the others come from `parked` and `dead_letters`.
    """
    again = F.col("why") == int(Why.REPLAYED)
    counted = waiting_away.where(F.col("seen") & ~again)
    findings = [_parked_twice(counted), _two_places(home, counted, "is parked and unfinished at once")]
    findings.append(_two_places(home, dead.where("seen"), "is dead and unfinished at once"))
    if ordered:
        findings.append(_overtaken(home, counted, waiting_away, dead))
    found = findings[0]
    for more in findings[1:]:
        found = found.unionByName(more)
    return found.withColumn("topic", F.lit(topic)).select(*FINDINGS)


def _parked_twice(counted: DataFrame) -> DataFrame:
    found = counted.groupBy("partition", "offset").agg(
        F.count("*").alias("times"), F.first("key").alias("key")
    )
    said = F.concat(F.lit("waits in the retry topic "), F.col("times").cast("string"), F.lit(" times"))
    return _finding(found.where("times > 1"), "parked twice", said)


def _two_places(home: DataFrame, away: DataFrame, said: str) -> DataFrame:
    unfinished = home.where("NOT finished").select("partition", "offset", "key")
    both = unfinished.join(away.select("partition", "offset"), ["partition", "offset"], "left_semi")
    return _finding(both, "two places", F.lit(said))


def _overtaken(home: DataFrame, counted: DataFrame, away: DataFrame, dead: DataFrame) -> DataFrame:
    undone = home.where("NOT finished AND key is not null").select("partition", "key", "offset")
    undone = undone.unionByName(counted.where("key is not null").select("partition", "key", "offset"))
    first = undone.groupBy("partition", "key").agg(F.min("offset").alias("undone"))
    excused = away.select("partition", "offset").unionByName(dead.select("partition", "offset"))
    acked = home.where("finished AND key is not null").select("partition", "key", "offset")
    late = acked.join(first, ["partition", "key"]).where("offset > undone")
    late = late.join(excused, ["partition", "offset"], "left_anti")
    said = F.concat(F.lit("was acked before "), F.col("undone").cast("string"), F.lit(" of its key was done"))
    return _finding(late, "overtaken", said)


def _finding(found: DataFrame, kind: str, said: Column) -> DataFrame:
    return found.select(F.lit(kind).alias("kind"), "partition", "offset", "key", said.alias("said"))
