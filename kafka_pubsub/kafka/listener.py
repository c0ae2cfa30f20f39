"""Whom a reader tells what comes and goes: the shape of the client's rebalance listener."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from kafka_pubsub.errors import PubSubError
from kafka_pubsub.model import ReadFrom, TopicPartition

__all__ = ["Listener"]


class Listener(Protocol):
    """The shape of the client's rebalance listener."""

    def assigned(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, ReadFrom]:
        """New partitions; returns where to read each from."""
        ...

    def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """They go; commits are still accepted until this returns."""
        ...

    def lost(self, partitions: Sequence[TopicPartition]) -> None:
        """They are gone already."""
        ...

    def failed(self, partition: TopicPartition | None, error: PubSubError, fatal: bool) -> None:
        """The log reported an error."""
        ...
