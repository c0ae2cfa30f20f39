"""The audit of a topic: the publisher's order, the archive beside the log, the subscriptions' state.

Theory. Everything is read up to ends that are noted first, so that all steps speak of the same messages. Each
step is a DataFrame of findings; most are empty, and only what is found is brought to the driver, `LISTED` of
each step at most.

Rules
1. A step reads the log again instead of keeping it: ten million messages don't fit a small driver, and needn't.
2. What moves while it is looked at is no finding (`transforms/subscriptions.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from kafka_pubsub.config import SubscriptionRecord
from kafka_pubsub.core.key_places import former_partitions, remedy
from kafka_pubsub.errors import NotFound
from kafka_pubsub.model import TopicPartition

from . import ownership
from .archives import archive_table
from .bodies import Bodies
from .cluster import Cluster
from .files import Files
from .place import Place
from .snapshots import take
from .transforms.blocks import compared, within
from .transforms.expectations import split
from .transforms.messages import raw_records
from .transforms.order import keys_out_of_place, numbered, out_of_order
from .transforms.rates import OUTSIDE, Spans, spans_of
from .transforms.rows import may_be_retry, rows
from .transforms.subscriptions import Positions, finished, judged, unreadable

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["LISTED", "Audit", "Step", "SubscriptionAudit"]

#: Findings of a step that are listed; the rest is counted.
LISTED = 1000
#: Seconds, the upper bounds of the bars of the plot of delays.
DELAYS = (0.01, 0.1, 1, 10, 60, 600, 3600, 86_400)


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
    """One look at one topic."""

    def __init__(self, spark: SparkSession, place: Place, topic: str, note: Callable[[str], None]) -> None:
        self.spark = spark
        self.place = place
        self.topic = topic
        self._note = note
        self._counted_messages: int | None = None
        self._messages: DataFrame | None = None
        self._given_ids: int | None = None
        # Spark looks for the first findings in one partition, then in four more ...; as there are none, in all, on a
        # core, then on four.
        spark.conf.set("spark.sql.limit.initialNumPartitions", "1000000")
        with Cluster(spark, place) as cluster:
            if topic not in cluster.topics():
                raise NotFound(f"topic {topic!r} doesn't exist on {place.bootstrap}")
            self.beginnings = cluster.beginnings([topic])
            self.ends = cluster.ends([topic])
            self.cluster_id = cluster.identity()
            times = cluster.times(topic)
        self.spans = None if times is None else spans_of(*times)

    def messages(self) -> DataFrame:
        """The topic up to the noted ends; each look at it reads it."""
        if self._messages is None:
            records = self._records(self.topic, self.ends)
            self._messages = rows(records, retry_topics=may_be_retry(self.topic))
        return self._messages

    def _records(
        self, topic: str, ends: Mapping[TopicPartition, int], starting: dict[int, int] | None = None
    ) -> DataFrame:
        ending = {topic: {at.partition: end for at, end in ends.items() if at.topic == topic}}
        # What retention takes while this reads is noticed by the comparison, which names it.
        return raw_records(
            self.spark,
            topic,
            self.place,
            starting="earliest" if starting is None else {topic: starting},
            ending=ending,
            lost="skip",
        )

    def volume(self) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """Messages, bytes, keys and times of each partition; and how many messages were published when."""
        self._note("counting")
        size = F.coalesce(F.length("data"), F.lit(0)) + F.coalesce(F.length("key"), F.lit(0))
        span = F.lit(OUTSIDE) if self.spans is None else self.spans.of(F.col("publish_time"))
        told = (
            self.messages()
            .withColumn("span", span)
            .groupingSets([["partition"], ["span"]], "partition", "span")
            .agg(
                F.grouping("partition").alias("by_span"),
                F.count("*").alias("messages"),
                F.sum(size).alias("bytes"),
                F.approx_count_distinct("key").alias("keys"),
                # As numbers: a timestamp that is brought to the driver gets the driver's time zone.
                F.unix_micros(F.min("publish_time")).alias("first"),
                F.unix_micros(F.max("publish_time")).alias("last"),
                F.count_if(_has_id()).alias("given"),
            )
            .collect()
        )
        found = {row.partition: row.asDict() for row in told if not row.by_span}
        self._given_ids = sum(each["given"] for each in found.values())
        self._counted_messages = sum(each["messages"] for each in found.values())
        return self._by_partition(found), self._by_span(
            {row.span: row.messages for row in told if row.by_span}
        )

    def _by_partition(self, found: Mapping[int, dict[str, Any]]) -> list[dict[str, Any]]:
        """Every partition, also those that are empty."""
        none: dict[str, Any] = {"messages": 0, "bytes": 0, "keys": 0, "first": None, "last": None}
        return [
            {
                "partition": at.partition,
                **{name: found.get(at.partition, none)[name] for name in ("messages", "bytes", "keys")},
                **{name: _utc(found.get(at.partition, none)[name]) for name in ("first", "last")},
                "beginning": self.beginnings[at],
                "end": end,
            }
            for at, end in sorted(self.ends.items())
        ]

    def _by_span(self, found: Mapping[int, int]) -> dict[str, Any]:
        spans = self.spans or Spans(0, 1, 0)
        counts = [found.get(at, 0) for at in range(spans.number)]
        return {
            "begins_s": spans.begins_s,
            "step_s": spans.step_s,
            "counts": counts,
            "outside": found.get(OUTSIDE, 0),
        }

    def order(self, sequence: str) -> Step:
        """The log by the publisher's numbers."""
        self._note("order of the log")
        return self._step("order of the log", out_of_order(numbered(self.messages(), sequence)))

    def expectations(self, conditions: Sequence[str], bodies: Bodies) -> Step:
        """Messages of which a condition doesn't hold, or whose bodies can't be decoded."""
        self._note("expectations")
        _, rejected = split(bodies.decoded(self.messages(), self.topic), conditions)
        kind, said = F.lit("unexpected").alias("kind"), F.col("reason").alias("said")
        return self._step("expectations", rejected.select(kind, "topic", "partition", "offset", "key", said))

    def splits(self) -> Step:
        """Keys that lie in several partitions, or in another than publishing puts them into."""
        self._note("keys and partitions")
        partitions = len(self.ends)
        step = self._step("keys and partitions", keys_out_of_place(self.messages(), partitions))
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
        given = self.messages().where(_has_id())
        twice = given.groupBy("message_id").agg(
            F.count("*").alias("times"),
            *(F.min(name).alias(name) for name in ("topic", "partition", "offset", "key")),
        )
        said = F.concat(
            F.lit("id "), "message_id", F.lit(" is there "), F.col("times").cast("string"), F.lit(" times")
        )
        found = twice.where("times > 1").select(
            F.lit("duplicate").alias("kind"), "topic", "partition", "offset", "key", said.alias("said")
        )
        return self._step("ids", found)

    def archive(self, path: str) -> tuple[Step, dict[str, int]]:
        """The archive beside the log; and how many offsets of each partition it is behind."""
        self._note("archive and log")
        # First how far it has come, then what it holds: the other way round a batch in between would be a gap.
        table = archive_table(self.spark, path, option="--archive")
        told = None
        if table.files is not None:
            told = ownership.committed_offsets(Files(self.spark, table.checkpoint)).get(self.topic)
        kept = self._archived(path)
        reached = _reached(kept) if told is None else told
        ranges = {
            (at.topic, at.partition): (self.beginnings[at], min(end, reached.get(at.partition, 0)))
            for at, end in self.ends.items()
        }
        step = self._step("archive and log", compared(within(self.messages(), ranges), within(kept, ranges)))
        behind = {str(at.partition): end - ranges[at.topic, at.partition][1] for at, end in self.ends.items()}
        return step, {number: left for number, left in behind.items() if left > 0}

    def _archived(self, path: str) -> DataFrame:
        table = archive_table(self.spark, path, option="--archive")
        return table.read().where(F.col("topic") == self.topic)

    def archive_order(self, path: str, sequence: str) -> Step:
        """The archive by the publisher's numbers."""
        self._note("order of the archive")
        kept = self._archived(path)
        return self._step("order of the archive", out_of_order(numbered(kept, sequence)))

    def delays(self, path: str) -> dict[str, Any]:
        """Seconds between publishing and archiving: percentiles, how many are below each of `DELAYS`, and over time."""
        self._note("delays")
        spans = self.spans or Spans(0, 1, 0)
        seconds = F.col("archived_at").cast("double") - F.col("publish_time").cast("double")
        bars = [F.count_if(seconds <= bound).alias(f"b{at}") for at, bound in enumerate(DELAYS)]
        told = (
            self._archived(path)
            .withColumn("span", spans.of(F.col("publish_time")))
            .groupingSets([[], ["span"]], "span")
            .agg(
                F.grouping("span").alias("whole"),
                F.count("*").alias("all"),
                F.percentile_approx(seconds, [0.5, 0.9, 0.99, 1.0]).alias("shares"),
                *bars,
            )
            .collect()
        )
        whole = next((row.asDict() for row in told if row.whole), {})
        p50, p90, p99, most = whole.get("shares") or [0.0] * 4
        below = {str(bound): whole.get(f"b{at}", 0) for at, bound in enumerate(DELAYS)}
        by_span = {row.span: row.shares for row in told if not row.whole}
        over = {
            name: [by_span[at][share] if at in by_span else None for at in range(spans.number)]
            for name, share in (("p50", 0), ("p99", 2))
        }
        return {
            "messages": whole.get("all", 0),
            "p50": p50,
            "p90": p90,
            "p99": p99,
            "max": most,
            "below": below,
            "over_time": {"begins_s": spans.begins_s, "step_s": spans.step_s, **over},
        }

    def subscription(self, record: SubscriptionRecord) -> SubscriptionAudit:
        """What a subscription has done, and whether that can be."""
        self._note(f"subscription {record.name}")
        taken = take(self.spark, self.place, self.topic, record, self._records, self._note)
        found, waiting, dead = taken.found, taken.waiting, taken.dead
        # Below both everything is finished, and was never moved: of a subscription that keeps up nothing need be read.
        home = finished(self._from(self._lowest(found, waiting)), found)
        ordered = record.options.message_ordering and taken.whole
        step = self._step(
            f"subscription {record.name}",
            judged(self.topic, home, waiting, dead, ordered=ordered),
        )
        for each in [*unreadable(found), *self._beyond(found)]:
            _add(step, dict(zip(("kind", "topic", "partition", "offset", "key", "said"), each, strict=True)))
        return self._counted(record.name, home, waiting, dead, step)

    def _lowest(self, found: Positions, waiting: DataFrame) -> dict[int, int]:
        """Of each partition the first offset that may not be done."""
        lowest = {row.partition: row.position for row in found.table.collect()}
        for row in waiting.groupBy("partition").agg(F.min("offset").alias("first")).collect():
            lowest[row.partition] = min(row["first"], lowest.get(row.partition, row["first"]))
        return {
            at.partition: max(self.beginnings[at], min(lowest.get(at.partition, 0), end))
            for at, end in self.ends.items()
        }

    def _from(self, offsets: dict[int, int]) -> DataFrame:
        records = self._records(self.topic, self.ends, offsets)
        return rows(records, retry_topics=may_be_retry(self.topic))

    def _beyond(self, found: Any) -> list[tuple[Any, ...]]:
        with Cluster(self.spark, self.place) as cluster:
            latest = {at.partition: end for at, end in cluster.ends([self.topic]).items()}
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
        self, name: str, home: DataFrame, waiting: DataFrame, dead: DataFrame, step: Step
    ) -> SubscriptionAudit:
        left = home.where("NOT finished").count()
        moved = self._known(waiting).select("partition", "offset").distinct().count()
        reasons = {row.reason: row["count"] for row in dead.groupBy("reason").count().collect()}
        ended = self._known(dead).select("partition", "offset").distinct().count()
        waiting.unpersist()
        dead.unpersist()
        acked = max(0, self._total() - left - moved - ended)
        return SubscriptionAudit(name, acked, left, moved, ended, reasons, step)

    def _known(self, moved: DataFrame) -> DataFrame:
        """Those that were published before the noted ends."""
        ends = [(at.partition, end) for at, end in self.ends.items()]
        table = self.spark.createDataFrame(ends, "partition int, _end bigint")
        return moved.join(F.broadcast(table), "partition").where("offset < _end").drop("_end")

    def _total(self) -> int:
        if self._counted_messages is None:
            self._counted_messages = self.messages().count()
        return self._counted_messages

    def _step(self, name: str, findings: DataFrame) -> Step:
        step = Step(name)
        # Nearly always there are none: one pass brings the first of them, and only if it is full all are counted.
        listed = findings.limit(LISTED).collect()
        for row in listed:
            _add(step, row.asDict())
        if len(listed) == LISTED:
            step.counts = {row.kind: row["count"] for row in findings.groupBy("kind").count().collect()}
        return step


def _reached(kept: DataFrame) -> dict[int, int]:
    """Where an archive whose checkpoint is elsewhere has come: by what it holds."""
    found = kept.groupBy("partition").agg(F.max("offset").alias("last")).collect()
    return {row.partition: row["last"] + 1 for row in found}


def _utc(micros: int | None) -> str | None:
    return (
        None
        if micros is None
        else (datetime.fromtimestamp(0, UTC) + timedelta(microseconds=micros)).isoformat()
    )


def _has_id() -> Column:
    return F.coalesce(F.array_contains(F.col("headers")["key"], "ps-id"), F.lit(False))


def _add(step: Step, finding: dict[str, Any]) -> None:
    key = finding["key"]
    finding["key"] = None if key is None else bytes(key).decode("utf-8", "backslashreplace")
    step.findings.append(finding)
    step.counts[finding["kind"]] = step.counts.get(finding["kind"], 0) + 1
