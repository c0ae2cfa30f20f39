"""What a subscription needs of the lanes of its topic, which the feature gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from kafka_pubsub.config import LaneTopic, SubscriptionLane, SubscriptionRecord, TopicRecord

__all__ = ["LaneParts"]


class LaneParts(Protocol):
    """Gives subscriptions their parts of lanes: a retry topic for each, and positions."""

    def check_lane(self, topic: TopicRecord, lane: LaneTopic) -> None:
        """Raises `FailedPrecondition` if a lane's Kafka topic isn't the one in the catalog."""

    def check(self, subscription: str, topic: TopicRecord) -> None:
        """Raises an error if a new subscription couldn't be given its part of a lane; changes nothing."""

    def begin(
        self, record: SubscriptionRecord, beginning: Callable[[str], dict[int, int]]
    ) -> dict[str, SubscriptionLane]:
        """Returns a new subscription's parts of lanes; `beginning` gives the positions in a lane's Kafka topic."""
        ...

    def join(self, record: SubscriptionRecord, topic: TopicRecord) -> SubscriptionRecord:
        """Gives a subscription that is being made its part of all lanes; returns its record as it is stored then."""
        ...

    def remove(self, record: SubscriptionRecord) -> None:
        """Deletes the retry topics of a subscription's lanes, if we made them."""
