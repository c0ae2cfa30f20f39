"""Finds what a subscription has done with a topic's messages (acked, waiting, parked, dead), and contradictions in it.

Theory. A message is in exactly one state: finished by the commit of the home topic (position and metadata), unfinished
there, in the retry topic, or a dead letter. The commits and the two other topics say which, so a job can check this
while the subscription runs.

Rules
1. Facts that were read at different moments may contradict each other though nothing is wrong. So ends are read before
   the commits: records below the ends count as parked or dead, and records above them only explain a missing message.
2. A record in the retry topic is unfinished unless it is below the retry partition's position, or finished by the
   metadata or by the checkpoint that the metadata names (`checkpoint.py`). Commands and checkpoints in the
   retry topic aren't messages.
3. A replayed message comes late on purpose, so it isn't reported.
4. A checkpoint may have many thousand runs, and as many messages may lie between them. So runs are cut into buckets of
   offsets, and each message is compared with few runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from kafka_pubsub.model import Committed, Run, TopicPartition
from kafka_pubsub.subscribe.formats import ack_map
from kafka_pubsub.subscribe.formats.checkpoint import Named, united
from kafka_pubsub.subscribe.formats.record import Why

from ..reading.rows import header_text, is_message, is_retry, retry_number
from .order import FINDINGS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "Positions",
    "dead_letters",
    "finished",
    "judged",
    "named_checkpoints",
    "parked",
    "positions",
    "unreadable",
]

#: Bits of an offset within a bucket, so that a bucket has at most 32 runs. With 8, a million records took three times
#: as long.
_BUCKET = 6


class Positions(NamedTuple):
    """A group's commits of one topic, as small tables."""

    #: topic, partition, position
    table: DataFrame
    #: topic, partition, bucket, runs: finished offsets above the positions, by bucket (rule 4); None: there are none.
    runs: DataFrame | None
    #: The partitions whose metadata can't be read: acks above their positions are lost.
    broken: Sequence[TopicPartition]


def positions(
    spark: SparkSession,
    topic: str,
    commits: Mapping[TopicPartition, Committed],
    copy: Mapping[int, int],
    told: Mapping[int, Sequence[Run]] | None = None,
) -> Positions:
    """Makes tables of the commits of `topic`.

    `copy` are the catalog's positions, for partitions without a commit. `told` are the finished runs of the checkpoints
    that the commits name, by partition (default: none).
    """
    known = {at.partition: found for at, found in commits.items() if at.topic == topic}
    rows, cut, broken = [], [], []
    for number in sorted({*known, *copy}):
        found = known.get(number, Committed(copy.get(number), ""))
        offset = 0 if found.offset is None else found.offset
        said = ack_map.decode(found.metadata, offset) if found.metadata else None
        if found.metadata and said is None:
            broken.append(TopicPartition(topic, number))
        rows.append((topic, number, offset))
        more = (told or {}).get(number, ()) if said is not None and said.more else ()
        runs = united(() if said is None else said.runs, more, offset)
        cut += [(topic, number, bucket, parts) for bucket, parts in _cut(runs).items()]
    table = spark.createDataFrame(rows, "topic string, partition int, position bigint")
    schema = "topic string, partition int, bucket bigint, runs array<struct<start:bigint,end:bigint>>"
    return Positions(table, spark.createDataFrame(cut, schema, verifySchema=False) if cut else None, broken)


def _cut(runs: Sequence[Run]) -> dict[int, list[Run]]:
    """Cuts the runs at the bounds of the buckets, and returns the parts by bucket."""
    parts: dict[int, list[Run]] = {}
    for start, end in runs:
        at = int(start)
        while at < end:
            bucket = at >> _BUCKET
            stop = min(int(end), (bucket + 1) << _BUCKET)
            parts.setdefault(bucket, []).append((at, stop))
            at = stop
    return parts


def named_checkpoints(commits: Mapping[TopicPartition, Committed], topics: Sequence[str]) -> dict[int, Named]:
    """Returns the checkpoints that commits of these topics need, by partition."""
    named = {}
    for place, stored in commits.items():
        if place.topic in topics and stored.metadata and stored.offset is not None:
            said = ack_map.decode(stored.metadata, stored.offset)
            if said is not None and said.more and said.checkpoint is not None:
                named[place.partition] = said.checkpoint
    return named


def unreadable(found: Positions) -> list[tuple[str, str, int, int, None, str]]:
    """Returns findings for metadata that can't be read."""
    said = "the commit's metadata isn't ours or damaged: acks above the position are lost and come again"
    return [("metadata", at.topic, at.partition, -1, None, said) for at in found.broken]


def finished(messages: DataFrame, found: Positions) -> DataFrame:
    """Adds `finished` to messages: whether the commits say that their offset is finished."""
    joined = messages.join(F.broadcast(found.table), ["topic", "partition"], "left")
    offset = F.col("offset")
    said = F.coalesce(offset < F.col("position"), F.lit(False))
    if found.runs is None:
        return joined.withColumn("finished", said).drop("position")
    joined = joined.withColumn("bucket", F.shiftright(offset, _BUCKET))
    joined = joined.join(F.broadcast(found.runs), ["topic", "partition", "bucket"], "left")
    in_run = F.exists("runs", lambda run: (offset >= run["start"]) & (offset < run["end"]))
    joined = joined.withColumn("finished", said | F.coalesce(in_run, F.lit(False)))
    return joined.drop("position", "bucket", "runs")


def parked(retry_records: DataFrame, found: Positions, ends: Mapping[TopicPartition, int]) -> DataFrame:
    """Returns the unfinished messages of a retry topic, with their origin and with `seen`: whether they count (rule 1).

    `found` are the commits of the retry topic, and `ends` the ends that were read before the commits.
    """
    mine = finished(retry_records.where(is_retry()), found).where("NOT finished")
    return _seen(mine.where(is_message()), ends).select(
        retry_number("partition").cast("int").alias("partition"),
        retry_number("origin").alias("offset"),
        "key",
        retry_number("attempt").alias("attempt"),
        retry_number("why").alias("why"),
        "seen",
    )


def dead_letters(
    records: DataFrame, topic: str, subscription: str, ends: Mapping[TopicPartition, int]
) -> DataFrame:
    """Returns the dead letters of one subscription, with their origin, their reason, and `seen` as `parked` has it."""
    mine = records.where(
        (header_text("ps-dead-topic") == topic) & (header_text("ps-dead-subscription") == subscription)
    )
    return _seen(mine, ends).select(
        header_text("ps-dead-partition").cast("int").alias("partition"),
        header_text("ps-dead-offset").cast("bigint").alias("offset"),
        "key",
        header_text("ps-dead-reason").alias("reason"),
        "seen",
    )


def _seen(records: DataFrame, ends: Mapping[TopicPartition, int]) -> DataFrame:
    """Adds `seen` to records: whether they lie below these ends."""
    # The ends are a table, because a plan with literals for thousands of partitions takes longer than the reading.
    rows = [(place.topic, place.partition, end) for place, end in ends.items()]
    table = records.sparkSession.createDataFrame(rows, "topic string, partition int, _end bigint")
    joined = records.join(F.broadcast(table), ["topic", "partition"], "left")
    return joined.withColumn("seen", F.coalesce(F.col("offset") < F.col("_end"), F.lit(False)))


def judged(
    topic: str, home: DataFrame, waiting_away: DataFrame, dead: DataFrame, *, ordered: bool
) -> DataFrame:
    """Finds messages in two states at once and, if `ordered`, messages acked before an earlier one of their key.

    `home` are the topic's messages with `finished`; `waiting_away` and `dead` come from `parked` and `dead_letters`.
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
