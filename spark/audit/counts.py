"""Counts an audit's messages, bytes and keys by partition and over time, and measures the delays of an archive.

Rule: one pass counts by partition and by span of time.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import functions as F

from kafka_pubsub.model import TopicPartition

from .rates import OUTSIDE, Spans

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Counts", "counted", "delays"]

#: The upper bounds of the bars in the plot of delays, in seconds.
DELAYS = (0.01, 0.1, 1, 10, 60, 600, 3600, 86_400)
_NONE: dict[str, Any] = {"messages": 0, "bytes": 0, "keys": 0, "first": None, "last": None}


class Counts(NamedTuple):
    """The counts that `counted` returns."""

    spans: Spans
    partitions: Mapping[TopicPartition, Mapping[str, Any]]
    #: The number of messages in each span.
    over_time: Mapping[int, int]
    #: How many messages have an id that their publisher gave.
    given: int

    def by_partition(self, ranges: Mapping[TopicPartition, tuple[int, int]]) -> list[dict[str, Any]]:
        """Lists the counts of every partition, also of empty ones, with the offsets that were read."""
        return [
            {
                "topic": at.topic,
                "partition": at.partition,
                **{name: self._of(at)[name] for name in ("messages", "bytes", "keys")},
                **{name: _utc(self._of(at)[name]) for name in ("first", "last")},
                "beginning": beginning,
                "end": end,
            }
            for at, (beginning, end) in ranges.items()
        ]

    def _of(self, at: TopicPartition) -> Mapping[str, Any]:
        return self.partitions.get(at, _NONE)

    def by_span(self) -> dict[str, Any]:
        """Returns how many messages were published in each span of time."""
        return {
            "begins_s": self.spans.begins_s,
            "step_s": self.spans.step_s,
            "counts": [self.over_time.get(at, 0) for at in range(self.spans.number)],
            "outside": self.over_time.get(OUTSIDE, 0),
        }


def counted(kept: DataFrame, spans: Spans | None) -> Counts:
    """Counts the messages that an audit has stored; with `spans` None they aren't counted by time."""
    span = F.lit(OUTSIDE) if spans is None else spans.of(F.col("publish_time"))
    told = (
        kept.withColumn("span", span)
        .groupingSets([["topic", "partition"], ["span"]], "topic", "partition", "span")
        .agg(
            F.grouping("partition").alias("by_span"),
            F.count("*").alias("messages"),
            F.sum("size").alias("bytes"),
            F.approx_count_distinct("key").alias("keys"),
            # Times are read as numbers, because Spark would give timestamps the driver's time zone.
            F.unix_micros(F.min("publish_time")).alias("first"),
            F.unix_micros(F.max("publish_time")).alias("last"),
            F.count("given").alias("given"),
        )
        .collect()
    )
    found = {TopicPartition(row.topic, row.partition): row.asDict() for row in told if not row.by_span}
    over_time = {row.span: row.messages for row in told if row.by_span}
    return Counts(spans or Spans(0, 1, 0), found, over_time, sum(each["given"] for each in found.values()))


def delays(archived: DataFrame, spans: Spans | None) -> dict[str, Any]:
    """Measures the seconds between publishing and archiving.

    The result has percentiles, how many messages took no longer than each of `DELAYS`, and percentiles by span of time.
    """
    spans = spans or Spans(0, 1, 0)
    seconds = F.col("archived_at").cast("double") - F.col("publish_time").cast("double")
    bars = [F.count_if(seconds <= bound).alias(f"b{at}") for at, bound in enumerate(DELAYS)]
    told = (
        archived.withColumn("span", spans.of(F.col("publish_time")))
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


def _utc(micros: int | None) -> str | None:
    return (
        None
        if micros is None
        else (datetime.fromtimestamp(0, UTC) + timedelta(microseconds=micros)).isoformat()
    )
