"""What features keep in Kafka beside a topic: the topics of its lanes, and the inbox of a causal topic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from kafka_pubsub.config import TopicOptions, TopicRecord
from kafka_pubsub.model import TopicInfo

__all__ = ["Inboxes", "Lanes"]


class Lanes(Protocol):
    """The Kafka topics of topics' lanes."""

    def check_kept(self, record: TopicRecord, after: TopicOptions) -> None:
        """Raises `FailedPrecondition` if a change would take lanes away, in which messages may wait."""

    def prepare(self, options: TopicOptions, info: TopicInfo) -> TopicInfo:
        """Prepares a topic for the lanes that these options allow; returns it as it is then."""
        ...

    def retain(self, record: TopicRecord, milliseconds: str | None) -> None:
        """Changes how long the topic and its lanes keep messages; None: the broker's default."""

    def delete(self, record: TopicRecord) -> None:
        """Deletes the lanes of a topic, also those that a call which didn't end has left."""


class Inboxes(Protocol):
    """The inboxes of causal topics, in which messages wait for their place in the order."""

    def check_left(self, record: TopicRecord, partitions: int) -> None:
        """Raises if the inbox that a deleted topic has left is one with which the new topic can't go on."""

    def make(self, home: TopicInfo, known: str) -> str:
        """Makes the inbox of a topic; returns its id. `known`: that of an inbox to go on with, or empty."""
        ...

    def say_alive(self, home: TopicInfo) -> None:
        """Writes into each partition of a topic's inbox that the topic was made."""

    def delete(self, record: TopicRecord, sleep: Callable[[float], None]) -> None:
        """Deletes the inbox of a topic that was deleted; `sleep` waits for sequencers that stand still."""
