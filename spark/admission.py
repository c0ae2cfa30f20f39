"""Plans the batches with which a job with a watermark takes a backlog: each batch is one span of time.

Theory. A watermark follows the newest message that was read. Spark bounds a batch by a count, of which each partition
gets a share. If one partition holds an hour and another one a minute, Spark has soon read the newest minute, and the
rest of the hour is late. A job that had always run would have read both as they were published. So a batch ends in all
partitions at the same moment of publishing: the latest one with which the batch isn't too large.

Spark's source has no such bound for a stream. But Spark writes its log of offsets ahead: it runs a batch that is in the
log and not committed with exactly these offsets, as after a crash. So this module writes the batch that it plans into
that log, and Spark runs it once. Spark still does all the rest (state, commits, recovery after a kill).

Rules
1. As soon as the rest of a backlog fits into one batch, Spark plans it itself. From then on a batch takes all messages
   that came meanwhile, which is a span of time as well.
2. No batch is planned while the log has one that isn't committed: Spark runs that one first.
3. A moment is one millisecond. If more messages than a batch may have were published in it, the batch takes them all.
4. A message whose time is in the future holds back the rest of its partition until the end of the backlog. Messages
   that are late because of that are counted like other late messages.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from kafka_pubsub.errors import AlreadyExists, FailedPrecondition
from kafka_pubsub.model import TopicPartition

from . import ownership
from .transforms.messages import by_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from .cluster import Cluster
    from .files import Files

__all__ = ["Batch", "batch_of", "is_open", "plan", "put"]

#: Settings of Spark that belong to a checkpoint: its first batch stores them, and later batches copy them.
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

Offsets = Mapping[TopicPartition, int]


class Batch(NamedTuple):
    """A batch in Spark's log: its end in each partition, and the watermark (ms) when it was planned."""

    ends: Mapping[str, Mapping[int, int]]
    watermark: int


def plan(cluster: Cluster, topic: str, checkpoint: Files, most: int) -> Offsets | None:
    """Returns where the next batch ends in each partition of all lanes; None if at most `most` messages are left."""
    noted = ownership.committed_offsets(checkpoint)
    lanes = cluster.with_lanes([topic])
    beginnings, ends = cluster.beginnings(lanes), cluster.ends(lanes)
    begun = {at: max(noted.get(at.topic, {}).get(at.partition, 0), first) for at, first in beginnings.items()}
    if _size(begun, ends) <= most:
        return None

    def until(moment: int) -> Offsets:
        found = cluster.offsets_at(lanes, moment)
        return {at: max(begun[at], min(end, found.get(at, end))) for at, end in ends.items()}

    # The messages before `low` fit into a batch, those before `high` don't.
    low, high = 0, int(time.time() * 1000) + 1
    fits, rest = until(low), until(high)
    if _size(begun, rest) <= most:
        # The messages beyond `rest` lie behind one whose time is in the future; Spark plans their batch itself.
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
    return sum(end - begun[at] for at, end in ends.items())


def is_open(checkpoint: Files) -> bool:
    """Returns whether the log has a batch that isn't committed, which Spark runs first."""
    return ownership.last_planned(checkpoint) > ownership.last_batch(checkpoint)


def put(checkpoint: Files, spark: SparkSession, ends: Offsets) -> None:
    """Writes the next batch into Spark's log; `FailedPrecondition` if another driver has written it."""
    last = ownership.last_batch(checkpoint)
    if last < 0:
        settings, watermark = {name: spark.conf.get(name) for name in _SETTINGS}, 0
    else:
        settings = json.loads(_line(checkpoint, f"offsets/{last}", 1))["conf"]
        watermark = json.loads(_line(checkpoint, f"commits/{last}", 1))["nextBatchWatermarkMs"]
    facts = {"batchWatermarkMs": watermark, "batchTimestampMs": int(time.time() * 1000), "conf": settings}
    text = "\n".join(["v1", json.dumps(facts), json.dumps(by_topic(ends))])
    try:
        checkpoint.create(f"offsets/{last + 1}", text)
    except AlreadyExists as error:
        raise FailedPrecondition(
            f"another driver works with checkpoint {checkpoint.root} and has planned batch {last + 1}; this one ends. "
            "Nothing is lost and nothing is there twice: let one of them run"
        ) from error


def batch_of(checkpoint: Files, number: int) -> Batch | None:
    """Reads a batch from Spark's log; None if it isn't there."""
    if number < 0 or not checkpoint.exists(f"offsets/{number}"):
        return None
    facts, source = (_line(checkpoint, f"offsets/{number}", line) for line in (1, 2))
    ends = {
        topic: {int(partition): end for partition, end in each.items()}
        for topic, each in json.loads(source).items()
    }
    return Batch(ends, json.loads(facts)["batchWatermarkMs"])


def _line(checkpoint: Files, path: str, line: int) -> str:
    try:
        return (checkpoint.read(path) or "").splitlines()[line]
    except IndexError as error:
        raise FailedPrecondition(f"{checkpoint.full(path)} isn't whole: restore the checkpoint") from error
