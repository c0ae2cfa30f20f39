"""Names a partition of a topic in the core: its lane and its number in the lane's Kafka topic.

The topic's own Kafka topic and each of its lanes have the same numbers of partitions, and each is a core partition.
"""

from __future__ import annotations

from typing import NamedTuple

from kafka_pubsub.lane_names import Lane

__all__ = ["PartitionId"]


class PartitionId(NamedTuple):
    """Which partition of a topic. Ids are sorted by lane, then by partition."""

    #: 0: the topic's own Kafka topic; else `Lane.number`. A number, so that a lookup by an id costs little.
    lane: int
    #: The partition's number in the Kafka topic.
    partition: int

    def __str__(self) -> str:
        """Returns how a log or an error names it: `3`, or `3 of .lane.p9`, by the end of its topic's name."""
        return f"{self.partition} of {Lane.at(self.lane).suffix}" if self.lane else str(self.partition)
