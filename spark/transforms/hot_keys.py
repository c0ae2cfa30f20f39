"""Measures the skew of a topic's keys, and suggests a number of partitions.

Theory. A key lies in one partition, so the hottest key limits how many partitions are useful: if it has a third of all
messages, no more than three partitions can be busy at once. A hash decides which partition a key lies in, so several
large keys may lie in one. Both effects are computed for each number of partitions, with the partitioner that all
clients share.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from kafka_pubsub.core.partitioner import partition_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["CANDIDATES", "WEIGHED", "KeyLoad", "Suggestion", "by_key", "suggest"]

#: The numbers of partitions to choose from: they can be divided evenly among many numbers of consumers.
CANDIDATES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
#: How many keys are assigned to partitions one by one; the others are so many and so small that they spread evenly.
WEIGHED = 10_000
#: The fullest partition may have so many times the mean: with more, one consumer is busy while the others wait.
UNEVEN = 1.5


class KeyLoad(NamedTuple):
    """A key, and how many messages and bytes it has."""

    key: bytes
    messages: int
    bytes: int


class Suggestion(NamedTuple):
    """A suggested number of partitions, and why.

    `unevenness` is the load of the fullest partition divided by the mean, for each number of partitions.
    """

    partitions: int
    #: How many partitions can be busy at once, by the hottest key's share.
    useful: float
    unevenness: dict[int, float]


def by_key(messages: DataFrame) -> DataFrame:
    """Counts the messages and bytes of each key; the hottest key comes first."""
    from pyspark.sql import functions as F

    size = F.coalesce(F.length("data"), F.lit(0)) + F.length("key")
    found = messages.where("key is not null").groupBy("key")
    return found.agg(F.count("*").alias("messages"), F.sum(size).alias("bytes")).orderBy(
        F.desc("messages"), "key"
    )


def suggest(hottest: Sequence[KeyLoad], total: int) -> Suggestion:
    """Suggests a number of partitions for a topic with these hottest keys and `total` keyed messages."""
    if not hottest or total <= 0:
        return Suggestion(1, 0.0, {})
    useful = total / hottest[0].messages
    rest = total - sum(each.messages for each in hottest)
    unevenness = {count: _unevenness(hottest, rest, count) for count in CANDIDATES}
    good = [count for count, found in unevenness.items() if found <= UNEVEN and count <= max(1.0, useful)]
    return Suggestion(max(good, default=1), useful, unevenness)


def _unevenness(hottest: Sequence[KeyLoad], rest: int, partitions: int) -> float:
    loads = [rest / partitions] * partitions
    for each in hottest:
        loads[partition_of(each.key, partitions)] += each.messages
    return max(loads) / (sum(loads) / partitions)
