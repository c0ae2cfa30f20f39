"""The numbers by which the partitions of a topic's lanes are told apart: each lane's partition is a core partition.

A topic's own Kafka topic keeps its partitions' numbers, so a topic without lanes has no others.
"""

from __future__ import annotations

from typing import Final

from kafka_pubsub.lane_names import MOST_PRIORITIES, Lane

__all__ = ["index_of", "lane_index", "number_of", "partition_of", "shown"]

#: More than a topic has partitions.
_STRIDE: Final = 2**20


def lane_index(lane: Lane) -> int:
    """Returns a lane's number among all that a topic may have beside its own Kafka topic; 0 is that topic."""
    return 1 + lane.priority + (0 if lane.durable else MOST_PRIORITIES)


def number_of(index: int, partition: int) -> int:
    """Returns the number of a lane's partition; `index` is 0 or a `lane_index`."""
    return index * _STRIDE + partition


def partition_of(number: int) -> int:
    """Returns the partition of a Kafka topic that this number stands for."""
    return number % _STRIDE


def index_of(number: int) -> int:
    """Returns the index of the lane that this number belongs to; 0 is the topic's own Kafka topic."""
    return number // _STRIDE


def shown(number: int) -> str:
    """Returns how a log or an error names the partition: `3`, or `3 of .lane.p9`, by the end of its topic's name."""
    index = index_of(number)
    if index == 0:
        return str(number)
    lane = Lane((index - 1) % MOST_PRIORITIES, index <= MOST_PRIORITIES)
    return f"{partition_of(number)} of {lane.suffix}"
