"""Takes a snapshot of a subscription: its commits, and what its retry and dead-letter topics held at that moment.

Theory. Commits and topics can't be read at one moment, so ends are noted before and after the commits
(`audit/subscriptions.py`, rule 1). Two kinds of changes in between could make a correct state look wrong.

Rules
1. A transaction's commit may be visible before its records can be read, because its markers are written one by one. So
   the ends after the commits are noted when all transactions that had written records by then have ended.
2. The owner of a partition deletes finished records from the retry topic. If it deletes records that these commits
   don't say are finished, records are missing, and the snapshot is taken again. If that happens `TRIES` times, the
   order of the subscription isn't checked.
3. The same holds if a checkpoint is missing that a commit names. A checkpoint is read alone, from its first record on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from kafka_pubsub.config import SubscriptionRecord
from kafka_pubsub.model import Committed, TopicPartition
from kafka_pubsub.subscribe.formats.checkpoint import Checkpoint, Named, Part, joined
from kafka_pubsub.subscribe.retry_topic import checkpoint_records as checkpoints

from ..base.cluster import Cluster
from .subscriptions import Positions, dead_letters, named_checkpoints, parked, positions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ..base.connection import Connection

__all__ = ["Ends", "Snapshot", "of_lane", "take"]

#: How often a snapshot is tried while the owner deletes records of the retry topic.
TRIES = 5

Ends = Mapping[TopicPartition, int]


class Read(Protocol):
    """A function that reads a topic's records."""

    def __call__(self, topic: str, ends: Ends, starting: dict[int, int] | None = None) -> DataFrame:
        """Reads the records before `ends`, in each partition from `starting` on (default: from the beginning)."""


class Snapshot(NamedTuple):
    """The state of a subscription at one moment."""

    found: Positions
    #: The messages that wait in the retry topic (`parked` of `audit/subscriptions.py`) and the dead letters
    #: (`dead_letters`); both are kept in memory.
    waiting: DataFrame
    dead: DataFrame
    #: Whether all messages of the retry topic could be read (rules 2 and 3).
    whole: bool


class _Said(NamedTuple):
    """The cluster's answers: the ends before the commits, the commits, and the ends after them."""

    before: Ends
    commits: Mapping[TopicPartition, Committed]
    after: Ends


def of_lane(record: SubscriptionRecord, topic: str) -> SubscriptionRecord:
    """Returns the subscription as the lane with this Kafka topic sees it: its positions and retry topic there."""
    if topic == record.topic:
        return record
    lane = record.lanes.get(topic)
    told = {"retry_topic": lane and lane.retry_topic, "positions": {} if lane is None else lane.positions}
    return record.model_copy(update=told)


def take(
    spark: SparkSession,
    connection: Connection,
    topic: str,
    record: SubscriptionRecord,
    read: Read,
    note: Callable[[str], None],
) -> Snapshot:
    """Takes a snapshot of the subscription `record` of `topic`."""
    away = [] if record.retry_topic is None else [record.retry_topic.name]
    graves = [] if record.options.dead_letter is None else [record.options.dead_letter.topic]
    copy = {} if record.retry_topic is None else record.retry_topic.positions
    with Cluster(spark, connection) as cluster:
        there = cluster.topics()
        away, graves = ([each for each in names if each in there] for names in (away, graves))
        for attempt in range(1, TRIES + 1):
            said = _ask(cluster, record.name, [*away, *graves])
            told = _checkpoints(topic, away, said, read)
            runs = {number: found.retry.runs for number, found in (told or {}).items()}
            beside = positions(spark, away[0], said.commits, copy, runs) if away else None
            waiting = _parked(spark, away, beside, said, read)
            whole = beside is None or (_has_all(cluster, beside, away) and told is not None)
            if whole or attempt == TRIES:
                break
            waiting.unpersist()
            note(f"subscription {record.name}: its owner deletes what we read; looking again")
        if not whole:
            note(f"subscription {record.name}: its owner deletes faster than we read; its order isn't judged")
        runs = {number: found.main.runs for number, found in (told or {}).items()}
        found = positions(spark, topic, said.commits, record.positions, runs)
        return Snapshot(found, waiting, _dead(spark, graves, topic, record.name, said, read), whole)


def _ask(cluster: Cluster, group: str, topics: Sequence[str]) -> _Said:
    before = cluster.ends(topics)
    commits = cluster.commits(group)
    return _Said(before, commits, cluster.decided_ends(topics))


def _checkpoints(home: str, away: Sequence[str], said: _Said, read: Read) -> Mapping[int, Checkpoint] | None:
    """Reads the checkpoints that the commits name, by partition; None if one is missing."""
    topic = "".join(away)
    ends = {at: end for at, end in said.after.items() if at.topic == topic}
    # A checkpoint beyond the end was in an earlier topic of that name.
    named = {
        number: each
        for number, each in named_checkpoints(said.commits, [home, *away]).items()
        if each.offset < ends.get(TopicPartition(topic, number), 0)
    }
    parts = {number: _parts(read, topic, ends, {number: each}) for number, each in named.items()}
    large = {number: named[number] for number, some in parts.items() if some and len(some) < some[0].total}
    for number, each in large.items():
        parts[number] = _parts(read, topic, ends, {number: each}, whole=True)
    told = {number: found for number, some in parts.items() if (found := joined(some)) is not None}
    return told if told.keys() == named.keys() else None


def _parts(
    read: Read, topic: str, ends: Ends, named: Mapping[int, Named], *, whole: bool = False
) -> list[Part]:
    """Reads the first record of each checkpoint, or (`whole`) all its records, which may lie among others."""
    first = {number: each.offset for number, each in named.items()}
    only = {
        at: end if whole or at.partition not in first else first[at.partition] + 1 for at, end in ends.items()
    }
    starting = {at.partition: first.get(at.partition, end) for at, end in ends.items()}
    records = (
        read(topic, only, starting).where("key is null").select("partition", "offset", "value").collect()
    )
    found = []
    for row in records:
        part = checkpoints.decode(None if row.value is None else bytes(row.value))
        each = named.get(row.partition)
        if (
            part is not None
            and each is not None
            and part.checkpoint.nonce == each.nonce
            and row.offset >= each.offset
        ):
            found.append(part)
    return found


def _has_all(cluster: Cluster, beside: Positions, away: Sequence[str]) -> bool:
    beginnings = cluster.beginnings(away)
    wanted = {row.partition: row.position for row in beside.table.collect()}
    return all(begin <= wanted.get(at.partition, 0) for at, begin in beginnings.items())


def _parked(
    spark: SparkSession, names: Sequence[str], beside: Positions | None, said: _Said, read: Read
) -> DataFrame:
    if beside is None:
        return spark.createDataFrame(
            [], "partition int, offset bigint, key binary, attempt bigint, why bigint, seen boolean"
        )
    # The messages are cached, because they are few beside the topic and are used five times. They are read now,
    # because their owner may soon delete them.
    waiting = parked(read(names[0], said.after), beside, said.before).cache()
    waiting.count()
    return waiting


def _dead(
    spark: SparkSession, names: Sequence[str], topic: str, subscription: str, said: _Said, read: Read
) -> DataFrame:
    if not names:
        return spark.createDataFrame(
            [], "partition int, offset bigint, key binary, reason string, seen boolean"
        )
    return dead_letters(read(names[0], said.after), topic, subscription, said.before).cache()
