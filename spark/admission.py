"""Which messages the next batch takes while a job with a watermark catches up: those of one span of time.

Theory. A watermark follows the newest message that was read. Spark bounds a batch by a count, and gives each partition
its share of it: of a partition that holds an hour and one that holds a minute it reads the newest minute soon, and
what is left of the hour is late then. A job that had run all the time would have read both as they were published. So
a batch ends in all partitions at one moment of publishing, the latest at which it takes no more than it may.

Spark's source has no such bound for a stream. But its log of offsets is written ahead: a batch that is in the log and
not among the commits is run, as after a crash, with just these offsets. So a batch that we plan is put there, and Spark
runs it once; all else (state, commits, what happens after a kill) stays Spark's.

Rules
1. What is left is given to Spark as it is once it fits into one batch. From then on a batch takes all that came
   meanwhile, which is a span of time as well.
2. A log that has a batch which isn't committed gets no other: that batch is run first.
3. A moment is one millisecond. Where more messages than a batch may take were published in one, it takes them all.
4. A message whose time lies in the future holds its partition up to the end. What is late by that is counted as any.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from kafka_pubsub.errors import AlreadyExists, FailedPrecondition

from . import ownership

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from .cluster import Cluster
    from .files import Files

__all__ = ["Batch", "batch_of", "is_open", "plan", "put"]

#: Settings of Spark that belong to a checkpoint: its first batch notes them, later ones copy them.
_SETTINGS = (
    "spark.sql.shuffle.partitions",
    "spark.sql.streaming.stateStore.providerClass",
    "spark.sql.streaming.stateStore.compression.codec",
    "spark.sql.streaming.stateStore.encodingFormat",
    "spark.sql.streaming.stateStore.rocksdb.formatVersion",
    "spark.sql.streaming.multipleWatermarkPolicy",
    "spark.sql.streaming.aggregation.stateFormatVersion",
    "spark.sql.streaming.join.stateFormatVersion",
    "spark.sql.streaming.flatMapGroupsWithState.stateFormatVersion",
    "spark.sql.streaming.statefulOperator.useStrictDistribution",
    "spark.sql.optimizer.pruneFiltersCanPruneStreamingSubplan",
)

#: Partition -> offset.
Offsets = Mapping[int, int]


class Batch(NamedTuple):
    """What Spark's log says of a batch: where it ends, and the watermark (ms) when it was planned."""

    ends: Mapping[str, Offsets]
    watermark: int


def plan(cluster: Cluster, topic: str, checkpoint: Files, most: int) -> Offsets | None:
    """Where the next batch ends in each partition; None: what is left is no more than `most` messages."""
    noted = ownership.committed_offsets(checkpoint).get(topic, {})
    beginnings = {at.partition: offset for at, offset in cluster.beginnings([topic]).items()}
    ends = {at.partition: offset for at, offset in cluster.ends([topic]).items()}
    begun = {number: max(noted.get(number, 0), first) for number, first in beginnings.items()}
    if _size(begun, ends) <= most:
        return None

    def until(moment: int) -> Offsets:
        found = {at.partition: offset for at, offset in cluster.offsets_at([topic], moment).items()}
        return {number: max(begun[number], min(end, found.get(number, end))) for number, end in ends.items()}

    # All before `low` fits into a batch, all before `high` doesn't.
    low, high = 0, int(time.time() * 1000) + 1
    fits, rest = until(low), until(high)
    if _size(begun, rest) <= most:
        # Times in the future: there is no moment that parts them from the others.
        return rest if _size(begun, rest) else None
    while high - low > 1 and _size(begun, fits) < most * 0.8:
        middle = (low + high) // 2
        found = until(middle)
        if _size(begun, found) <= most:
            low, fits = middle, found
        else:
            high, rest = middle, found
    return fits if _size(begun, fits) else rest


def _size(begun: Offsets, ends: Offsets) -> int:
    return sum(end - begun[number] for number, end in ends.items())


def is_open(checkpoint: Files) -> bool:
    """Whether the log has a batch that isn't committed, so that Spark runs it first."""
    return _last_planned(checkpoint) > ownership.last_batch(checkpoint)


def put(checkpoint: Files, spark: SparkSession, topic: str, ends: Offsets) -> None:
    """Writes the next batch into Spark's log; `FailedPrecondition` if another driver was quicker."""
    last = ownership.last_batch(checkpoint)
    if last < 0:
        settings, watermark = {name: spark.conf.get(name) for name in _SETTINGS}, 0
    else:
        settings = json.loads(_line(checkpoint, f"offsets/{last}", 1))["conf"]
        watermark = json.loads(_line(checkpoint, f"commits/{last}", 1))["nextBatchWatermarkMs"]
    facts = {"batchWatermarkMs": watermark, "batchTimestampMs": int(time.time() * 1000), "conf": settings}
    offsets = {topic: {str(number): end for number, end in sorted(ends.items())}}
    text = "\n".join(["v1", json.dumps(facts), json.dumps(offsets)])
    try:
        checkpoint.create(f"offsets/{last + 1}", text)
    except AlreadyExists as error:
        raise FailedPrecondition(
            f"another driver works with checkpoint {checkpoint.root} and has planned batch {last + 1}; this one ends. "
            "Nothing is lost and nothing is there twice: let one of them run"
        ) from error


def batch_of(checkpoint: Files, number: int) -> Batch | None:
    """A batch of Spark's log; None if there is none."""
    if number < 0 or not checkpoint.exists(f"offsets/{number}"):
        return None
    facts, source = (_line(checkpoint, f"offsets/{number}", line) for line in (1, 2))
    ends = {
        topic: {int(partition): end for partition, end in each.items()}
        for topic, each in json.loads(source).items()
    }
    return Batch(ends, json.loads(facts)["batchWatermarkMs"])


def _last_planned(checkpoint: Files) -> int:
    return max((int(name) for name in checkpoint.names("offsets") if name.isdigit()), default=-1)


def _line(checkpoint: Files, path: str, line: int) -> str:
    try:
        return (checkpoint.read(path) or "").splitlines()[line]
    except IndexError as error:
        raise FailedPrecondition(f"{checkpoint.full(path)} isn't whole: restore the checkpoint") from error
