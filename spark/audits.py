"""The audit of a topic: the publisher's order, the archive beside the log, the subscriptions' state.

Theory. Everything is read up to ends that are noted first, so that all steps speak of the same messages. Each
step is a DataFrame of findings; most are empty, and only what is found is brought to the driver, `LISTED` of
each step at most.

Rules
1. The topic is read once. What the steps look at (places, keys, numbers, sizes, a hash of what is compared) is kept on
   the executors' disks, without the bodies. Only --expect looks at bodies, and reads them once more.
2. What moves while it is looked at is no finding (`transforms/subscriptions.py`).
3. An audit that goes on from an earlier one judges what came since. It reads further back only as far as an archive
   was not compared, and for what a subscription hasn't finished.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark import StorageLevel
from pyspark.sql import functions as F

from kafka_pubsub.config import SubscriptionRecord
from kafka_pubsub.core.key_places import former_partitions, remedy
from kafka_pubsub.errors import NotFound
from kafka_pubsub.model import TopicPartition

from . import ownership
from .archive_table import archive_table
from .audit_counts import counted, delays
from .bodies import Bodies
from .connection import Connection
from .remote_cluster import cluster_of
from .remote_files import files_below
from .snapshots import Snapshot, take
from .transforms.blocks import compared, content_of, within
from .transforms.expectations import split
from .transforms.messages import raw_records
from .transforms.order import highest, keys_out_of_place, number_of, numbered, out_of_order
from .transforms.rates import spans_of
from .transforms.rows import may_be_retry, rows
from .transforms.subscriptions import finished, judged, unreadable

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["LISTED", "Audit", "Step", "SubscriptionAudit"]

#: Findings of a step that are listed; the rest is counted.
LISTED = 1000
#: Behind every offset.
_NEVER = 2**62


@dataclass
class Step:
    """What one look found: how many of each kind, and the first of them."""

    name: str
    counts: dict[str, int] = field(default_factory=dict)
    findings: list[dict[str, Any]] = field(default_factory=list)
    #: What to do about them; empty: nothing.
    advice: str = ""

    @property
    def clean(self) -> bool:
        """Whether nothing was found."""
        return not self.counts


@dataclass
class SubscriptionAudit:
    """What a subscription has done, in messages."""

    name: str
    acked: int
    waiting: int
    parked: int
    dead: int
    reasons: dict[str, int]
    step: Step


class Audit:
    """One look at one topic. `sequence` and `archive`: what is judged beside the log itself."""

    def __init__(
        self,
        spark: SparkSession,
        connection: Connection,
        topic: str,
        note: Callable[[str], None],
        *,
        sequence: str | None = None,
        archive: str | None = None,
    ) -> None:
        self.spark = spark
        self.connection = connection
        self.topic = topic
        self._note = note
        self.sequence = sequence
        self._archive = None if archive is None else archive_table(spark, archive, option="--archive")
        self._taken: dict[str, Snapshot] = {}
        self._kept: DataFrame | None = None
        self._counted_messages = 0
        self._given_ids: int | None = None
        # Spark looks for the first findings in one partition, then in four more ...; as there are none, in all, on a
        # core, then on four.
        spark.conf.set("spark.sql.limit.initialNumPartitions", "1000000")
        with cluster_of(spark, connection) as cluster:
            if topic not in cluster.topics():
                raise NotFound(f"topic {topic!r} doesn't exist on {connection.bootstrap}")
            self.beginnings = _by_number(cluster.beginnings([topic]))
            self.ends = _by_number(cluster.ends([topic]))
            self.cluster_id = cluster.identity()
            self.topic_id = cluster.topic_id(topic)
            times = cluster.times(topic)
        self.spans = None if times is None else spans_of(*times)
        #: Where what is judged begins, where it is read from, and up to where the archive was compared before.
        self.since: Mapping[int, int] = self.beginnings
        self._start: dict[int, int] = dict(self.beginnings)
        self._compared: Mapping[int, int] = {}
        self._reached: dict[int, int] = {}

    def begin(
        self,
        subscriptions: Sequence[SubscriptionRecord],
        since: Mapping[int, int] | None = None,
        compared: Mapping[int, int] | None = None,
    ) -> None:
        """Looks at the subscriptions, and finds out from where the topic must be read.

        `since` is where an earlier audit ended, and `compared` up to where it had compared the archive.
        """
        for each in subscriptions:
            self._note(f"subscription {each.name}")
            self._taken[each.name] = take(
                self.spark, self.connection, self.topic, each, self._records, self._note
            )
        if since is None:
            return
        self.since = {number: max(first, since.get(number, 0)) for number, first in self.beginnings.items()}
        bounds = [self.since, *(self._lowest(each) for each in self._taken.values())]
        if self._archive is not None:
            self._compared = compared or {}
            bounds.append(self._compared_from())
        self._start = {number: min(each[number] for each in bounds) for number in self.since}

    def _compared_from(self) -> dict[int, int]:
        return {
            number: max(first, self._compared.get(number, 0)) for number, first in self.beginnings.items()
        }

    @property
    def _whole(self) -> bool:
        return self.since == self.beginnings

    def close(self) -> None:
        """Lets go of what was kept."""
        if self._kept is not None:
            self._kept.unpersist()

    def messages(self) -> DataFrame:
        """The topic up to the noted ends, with bodies; each look at it reads it."""
        return rows(self._records(self.topic, None, self._start), retry_topics=may_be_retry(self.topic))

    def kept(self) -> DataFrame:
        """Of each message what the steps look at (rule 1)."""
        if self._kept is None:
            found = self.messages()
            size = F.coalesce(F.length("data"), F.lit(0)) + F.coalesce(F.length("key"), F.lit(0))
            told = {"size": size, "given": F.when(_has_id(), F.col("message_id"))}
            if self.sequence is not None:
                told["number"] = number_of(found, self.sequence)
            if self._archive is not None:
                told["content"] = content_of()
            columns = [column.alias(name) for name, column in told.items()]
            found = found.select("topic", "partition", "offset", "key", "publish_time", *columns)
            self._kept = found.persist(StorageLevel.DISK_ONLY)
        return self._kept

    def _judged(self) -> DataFrame:
        """What is kept, without what an earlier audit has judged."""
        return self.kept() if self._start == self.since else self._from(self.since)

    def _from(self, offsets: Mapping[int, int]) -> DataFrame:
        return within(self.kept(), self._ranges(offsets, self.ends))

    def _ranges(
        self, starts: Mapping[int, int], ends: Mapping[int, int]
    ) -> dict[tuple[str, int], tuple[int, int]]:
        return {(self.topic, number): (start, ends[number]) for number, start in starts.items()}

    def _records(
        self,
        topic: str,
        ends: Mapping[TopicPartition, int] | None,
        starting: Mapping[int, int] | None = None,
    ) -> DataFrame:
        ending = (
            self.ends
            if ends is None
            else {at.partition: end for at, end in ends.items() if at.topic == topic}
        )
        # What retention takes while this reads is noticed by the comparison, which names it.
        return raw_records(
            self.spark,
            topic,
            self.connection,
            starting="earliest" if starting is None else {topic: starting},
            ending={topic: ending},
            lost="skip",
        )

    def volume(self) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """Messages, bytes, keys and times of each partition; and how many messages were published when."""
        self._note("reading and counting")
        found = counted(self._judged(), self.spans)
        self._given_ids = found.given
        ranges = {number: (self.since[number], end) for number, end in sorted(self.ends.items())}
        partitions = found.by_partition(ranges)
        self._counted_messages = sum(each["messages"] for each in partitions)
        return partitions, found.by_span()

    def order(self, before: DataFrame | None = None) -> Step:
        """The log by the publisher's numbers; `before` is what an earlier audit has seen of each key."""
        self._note("order of the log")
        return self._step("order of the log", out_of_order(self.numbers(), before))

    def numbers(self) -> DataFrame:
        """The keyed messages with their number."""
        return self._judged().where("key is not null")

    def highest(self) -> DataFrame:
        """Each key's highest number."""
        return highest(self.numbers())

    def expectations(self, conditions: Sequence[str], bodies: Bodies) -> Step:
        """Messages of which a condition doesn't hold, or whose bodies can't be decoded."""
        self._note("expectations")
        _, rejected = split(bodies.decoded(self._whole_messages(), self.topic), conditions)
        kind, said = F.lit("unexpected").alias("kind"), F.col("reason").alias("said")
        return self._step("expectations", rejected.select(kind, "topic", "partition", "offset", "key", said))

    def _whole_messages(self) -> DataFrame:
        """What is judged, with bodies."""
        return rows(self._records(self.topic, None, self.since), retry_topics=may_be_retry(self.topic))

    def splits(self) -> Step:
        """Keys that lie in several partitions, or in another than publishing puts them into."""
        self._note("keys and partitions")
        partitions = len(self.ends)
        step = self._step("keys and partitions", keys_out_of_place(self._judged(), partitions))
        if not step.clean:
            misplaced = {
                each["key"].encode(): each["partition"]
                for each in step.findings
                if each["kind"] == "misplaced"
            }
            step.advice = remedy(former_partitions(partitions, misplaced))
        return step

    def ids(self) -> Step:
        """Messages that were written twice under one id, as a batch that was repeated does."""
        if self._given_ids == 0:
            # The count has seen them all, so that most topics need no further look.
            return Step("ids")
        self._note("ids")
        given = self._judged().where("given is not null")
        twice = given.groupBy("given").agg(
            F.count("*").alias("times"),
            *(F.min(name).alias(name) for name in ("topic", "partition", "offset", "key")),
        )
        said = F.concat(
            F.lit("id "), "given", F.lit(" is there "), F.col("times").cast("string"), F.lit(" times")
        )
        found = twice.where("times > 1").select(
            F.lit("duplicate").alias("kind"), "topic", "partition", "offset", "key", said.alias("said")
        )
        return self._step("ids", found)

    def archive(self) -> tuple[Step, dict[int, int]]:
        """The archive beside the log; and how many offsets of each partition it is behind."""
        self._note("archive and log")
        # First how far it has come, then what it holds: the other way round a batch in between would be a gap.
        table, told = self._archive, None
        if table is None:
            raise ValueError("this audit has no archive")
        if table.files is not None:
            told = ownership.committed_offsets(files_below(self.spark, table.checkpoint)).get(self.topic)
        reached = _reached(self._archived()) if told is None else told
        self._reached = {number: min(end, reached.get(number, 0)) for number, end in self.ends.items()}
        ranges = self._ranges(self._compared_from(), self._reached)
        held = within(self._archived(), ranges)
        step = self._step("archive and log", compared(within(self.kept(), ranges), held))
        behind = {number: end - self._reached[number] for number, end in self.ends.items()}
        return step, {number: left for number, left in behind.items() if left > 0}

    @property
    def archive_address(self) -> str:
        """Which archive is compared; empty: none."""
        return "" if self._archive is None else self._archive.address

    @property
    def archive_progress(self) -> dict[str, Any] | None:
        """Up to where which archive was compared, for the next audit."""
        return None if self._archive is None else {"address": self._archive.address, "reached": self._reached}

    def _archived(self) -> DataFrame:
        """The topic in the archive, without what an earlier audit has compared."""
        if self._archive is None:
            raise ValueError("this audit has no archive")
        found = self._archive.read().where(F.col("topic") == self.topic)
        if not self._compared:
            return found
        # The bound is for Delta, which skips files by it.
        starts = self._compared_from()
        found = found.where(F.col("offset") >= min(starts.values()))
        return within(found, {(self.topic, number): (start, _NEVER) for number, start in starts.items()})

    def archive_order(self) -> Step | None:
        """The archive by the publisher's numbers; None where it was compared with a log that was looked at before."""
        if self.sequence is None or not self._whole:
            return None
        self._note("order of the archive")
        return self._step("order of the archive", out_of_order(numbered(self._archived(), self.sequence)))

    def delays(self) -> dict[str, Any]:
        """Seconds between publishing and archiving: percentiles, how many are below each bound, and over time."""
        self._note("delays")
        return delays(self._archived(), self.spans)

    def subscription(self, record: SubscriptionRecord, before: int = 0) -> SubscriptionAudit:
        """What a subscription has done, and whether that can be; `before`: messages that earlier audits counted."""
        taken = self._taken[record.name]
        found, waiting, dead = taken.found, taken.waiting, taken.dead
        # Below both everything is finished, and was never moved: where it keeps up nothing is looked at.
        home = finished(self._from(self._lowest(taken)), found)
        ordered = record.options.message_ordering and taken.whole
        step = self._step(
            f"subscription {record.name}",
            judged(self.topic, home, waiting, dead, ordered=ordered),
        )
        for each in [*unreadable(found), *self._beyond(found)]:
            _add(step, dict(zip(("kind", "topic", "partition", "offset", "key", "said"), each, strict=True)))
        return self._counted(record.name, home, waiting, dead, step, before)

    def _lowest(self, taken: Snapshot) -> dict[int, int]:
        """Of each partition the first offset that may not be done."""
        lowest = {row.partition: row.position for row in taken.found.table.collect()}
        for row in taken.waiting.groupBy("partition").agg(F.min("offset").alias("first")).collect():
            lowest[row.partition] = min(row["first"], lowest.get(row.partition, row["first"]))
        return {
            number: max(self.beginnings[number], min(lowest.get(number, 0), end))
            for number, end in self.ends.items()
        }

    def _beyond(self, found: Any) -> list[tuple[Any, ...]]:
        with cluster_of(self.spark, self.connection) as cluster:
            latest = _by_number(cluster.ends([self.topic]))
        return [
            (
                "beyond",
                self.topic,
                row.partition,
                row.position,
                None,
                "the position is behind the end of the log",
            )
            for row in found.table.collect()
            if row.position > latest.get(row.partition, row.position)
        ]

    def _counted(
        self, name: str, home: DataFrame, waiting: DataFrame, dead: DataFrame, step: Step, before: int
    ) -> SubscriptionAudit:
        left = home.where("NOT finished").count()
        moved = self._known(waiting).select("partition", "offset").distinct().count()
        reasons = {row.reason: row["count"] for row in dead.groupBy("reason").count().collect()}
        ended = self._known(dead).select("partition", "offset").distinct().count()
        waiting.unpersist()
        dead.unpersist()
        acked = max(0, before + self._counted_messages - left - moved - ended)
        return SubscriptionAudit(name, acked, left, moved, ended, reasons, step)

    def _known(self, moved: DataFrame) -> DataFrame:
        """Those that were published before the noted ends."""
        table = self.spark.createDataFrame(list(self.ends.items()), "partition int, _end bigint")
        return moved.join(F.broadcast(table), "partition").where("offset < _end").drop("_end")

    def _step(self, name: str, findings: DataFrame) -> Step:
        step = Step(name)
        # Nearly always there are none: one pass brings the first of them, and only if it is full all are counted.
        listed = findings.limit(LISTED).collect()
        for row in listed:
            _add(step, row.asDict())
        if len(listed) == LISTED:
            step.counts = {row.kind: row["count"] for row in findings.groupBy("kind").count().collect()}
        return step


def _by_number(offsets: Mapping[TopicPartition, int]) -> dict[int, int]:
    return {at.partition: offset for at, offset in offsets.items()}


def _reached(kept: DataFrame) -> dict[int, int]:
    """Where an archive whose checkpoint is elsewhere has come: by what it holds."""
    found = kept.groupBy("partition").agg(F.max("offset").alias("last")).collect()
    return {row.partition: row["last"] + 1 for row in found}


def _has_id() -> Column:
    return F.coalesce(F.array_contains(F.col("headers")["key"], "ps-id"), F.lit(False))


def _add(step: Step, finding: dict[str, Any]) -> None:
    key = finding["key"]
    finding["key"] = None if key is None else bytes(key).decode("utf-8", "backslashreplace")
    step.findings.append(finding)
    step.counts[finding["kind"]] = step.counts.get(finding["kind"], 0) + 1
