"""Skew: which keys carry a topic, how full its partitions are, and how many partitions would be worth having.

Theory. A key lies in one partition, so the hottest key bounds what partitions can do: with a third of all
messages, three partitions are as many as can be busy at once. And keys fall into partitions by their hash, so a
few large ones may meet in one. Both are computed for each number of partitions, with the partitioner that all
clients share.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from kafka_pubsub.core.partitioner import partition_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["CANDIDATES", "WEIGHED", "KeyLoad", "Suggestion", "by_key", "suggest"]

#: Numbers of partitions that people choose, because they divide among many numbers of consumers.
CANDIDATES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
#: Keys that are placed one by one; the others are so many and so small that they spread evenly.
WEIGHED = 10_000
#: The fullest partition may have so much more than the mean: above, one consumer is busy while others wait.
UNEVEN = 1.5


class KeyLoad(NamedTuple):
    """A key and what it carries."""

    key: bytes
    messages: int
    bytes: int


class Suggestion(NamedTuple):
    """`unevenness`: the fullest partition by the mean, for each number of partitions."""

    partitions: int
    #: Partitions that can be busy at once, by the hottest key.
    useful: float
    unevenness: dict[int, float]


def by_key(messages: DataFrame) -> DataFrame:
    """Messages and bytes of each key, the hottest first."""
    from pyspark.sql import functions as F

    size = F.coalesce(F.length("data"), F.lit(0)) + F.length("key")
    found = messages.where("key is not null").groupBy("key")
    return found.agg(F.count("*").alias("messages"), F.sum(size).alias("bytes")).orderBy(
        F.desc("messages"), "key"
    )


def suggest(hottest: Sequence[KeyLoad], total: int) -> Suggestion:
    """How many partitions for these keys and `total` keyed messages."""
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
