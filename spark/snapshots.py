"""A subscription at one moment: its commits, and what its retry and dead-letter topics held then.

Theory. Commits and topics can't be read together, so ends are noted before and after the commits
(`transforms/subscriptions.py`, rule 1). Two things move meanwhile, and would make the truth look false.

Rules
1. What a transaction has committed may be told before its records can be read: its markers are written one by one.
   So the ends after the commits are noted when everything that had been written by then is decided.
2. The owner deletes what it has finished. If that comes to what wasn't finished by these commits, records are
   missing, and all is looked at anew; who is quicker than we are `TRIES` times isn't judged by order.
3. So it is when a tally is missing that a commit names. It is read alone: one record of a partition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from kafka_pubsub.config import SubscriptionRecord
from kafka_pubsub.core import tally
from kafka_pubsub.core.offsets import Run
from kafka_pubsub.model import Committed, TopicPartition

from .cluster import Cluster
from .transforms.subscriptions import Positions, dead_letters, named_tallies, parked, positions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from .place import Place

__all__ = ["Snapshot", "take"]

#: How often a subscription is looked at whose retry topic is deleted under our eyes.
TRIES = 5

Ends = Mapping[TopicPartition, int]


class Read(Protocol):
    """Reads a topic's records."""

    def __call__(self, topic: str, ends: Ends, starting: dict[int, int] | None = None) -> DataFrame:
        """Those up to these ends; `starting`: of each partition from there on."""


class Snapshot(NamedTuple):
    """What a subscription had done."""

    found: Positions
    #: What is parked, and what is dead, of `transforms/subscriptions.py`; kept in memory.
    waiting: DataFrame
    dead: DataFrame
    #: Whether all that was parked could be read (rule 2).
    whole: bool


class _Said(NamedTuple):
    """What the cluster said."""

    before: Ends
    commits: Mapping[TopicPartition, Committed]
    after: Ends


def take(
    spark: SparkSession,
    place: Place,
    topic: str,
    record: SubscriptionRecord,
    read: Read,
    note: Callable[[str], None],
) -> Snapshot:
    """The subscription as it is."""
    away = [] if record.retry_topic is None else [record.retry_topic.name]
    graves = [] if record.options.dead_letter is None else [record.options.dead_letter.topic]
    copy = {} if record.retry_topic is None else record.retry_topic.positions
    with Cluster(spark, place) as cluster:
        there = cluster.topics()
        away, graves = ([each for each in names if each in there] for names in (away, graves))
        for attempt in range(1, TRIES + 1):
            said = _ask(cluster, record.name, [*away, *graves])
            told = _tallies(away, said, read)
            beside = positions(spark, away[0], said.commits, copy, told) if away else None
            waiting = _parked(spark, away, beside, said, read)
            whole = beside is None or (_has_all(cluster, beside, away) and told is not None)
            if whole or attempt == TRIES:
                break
            waiting.unpersist()
            note(f"subscription {record.name}: its owner deletes what we read; looking again")
        if not whole:
            note(f"subscription {record.name}: its owner deletes faster than we read; its order isn't judged")
        found = positions(spark, topic, said.commits, record.positions)
        return Snapshot(found, waiting, _dead(spark, graves, topic, record.name, said, read), whole)


def _ask(cluster: Cluster, group: str, topics: Sequence[str]) -> _Said:
    before = cluster.ends(topics)
    commits = cluster.commits(group)
    return _Said(before, commits, cluster.decided_ends(topics))


def _tallies(away: Sequence[str], said: _Said, read: Read) -> Mapping[int, Sequence[Run]] | None:
    """What the tallies tell that the commits of the retry topic name; None: one is missing."""
    topic = "".join(away)
    ends = {place: end for place, end in said.after.items() if place.topic == topic}
    # One beyond the end was in an earlier topic of that name.
    named = {
        number: at
        for number, at in named_tallies(topic, said.commits).items()
        if at < ends.get(TopicPartition(topic, number), 0)
    }
    if not named:
        return {}
    only = {
        place: named[place.partition] + 1 if place.partition in named else end for place, end in ends.items()
    }
    starting = {place.partition: named.get(place.partition, end) for place, end in ends.items()}
    records = read(topic, only, starting).select("partition", "offset", "value").collect()
    found = {
        row.partition: tally.decode(None if row.value is None else bytes(row.value))
        for row in records
        if row.offset == named.get(row.partition)
    }
    told = {number: runs for number, runs in found.items() if runs is not None}
    return told if told.keys() == named.keys() else None


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
    # Kept: it is small beside the topic, and looked at five times. Read at once: it may soon be gone.
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
