"""The partitions of a topic without lanes, by number: `P[3]`."""

from __future__ import annotations

from kafka_pubsub.partition_id import PartitionId

__all__ = ["P"]

P = [PartitionId(0, number) for number in range(1000)]
