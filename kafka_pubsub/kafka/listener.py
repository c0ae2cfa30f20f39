"""The protocol of a rebalance listener, which a reader calls when partitions come and go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from kafka_pubsub.errors import PubSubError
from kafka_pubsub.model import ReadFrom, TopicPartition

__all__ = ["Listener"]


class Listener(Protocol):
    """A rebalance listener; the reader calls it inside `read` or `close`."""

    def assigned(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, ReadFrom]:
        """New partitions; returns where to read each from."""
        ...

    def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """The partitions are about to go; commits are accepted until this returns."""
        ...

    def lost(self, partitions: Sequence[TopicPartition]) -> None:
        """The partitions are gone already; commits for them are refused."""
        ...

    def failed(self, partition: TopicPartition | None, error: PubSubError, fatal: bool) -> None:
        """The log reported an error."""
        ...
