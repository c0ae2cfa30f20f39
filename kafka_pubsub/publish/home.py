"""The publisher of a topic that may lie in several Kafka topics: one for each of its lanes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from concurrent.futures import Future

from kafka_pubsub.lane_names import Lane
from kafka_pubsub.publish.many import Messages
from kafka_pubsub.publish.publisher import TopicPublisher

__all__ = ["Home"]


class Home(TopicPublisher):
    """Publishes to one topic and its lanes."""

    @property
    @abstractmethod
    def laned(self) -> bool:
        """Whether the topic has lanes, as far as is known."""

    @abstractmethod
    def is_causal(self) -> bool:
        """Returns whether the topic is causal; looks that up if it is time to."""

    def publish_in(
        self,
        data: bytes,
        ordering_key: str | None,
        attributes: Mapping[str, str] | None,
        priority: int | None,
        durable: bool | None,
    ) -> Future[str]:
        """Publishes a message with a priority and a class; None takes the default, which a topic without lanes has."""
        return self.publish(data, ordering_key, attributes)

    @abstractmethod
    def choose(self, priority: object, durable: object) -> Lane:
        """Returns the lane for these arguments; raises `InvalidArgument`, which names the wrong one."""

    @abstractmethod
    def lane_publisher(self, lane: Lane) -> TopicPublisher:
        """Returns the publisher of a lane, which exists then."""

    @abstractmethod
    def home_of(self, index: int, messages: Messages) -> str:
        """Returns the Kafka topic of a message that is published together with others."""
