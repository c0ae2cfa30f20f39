"""What a `PubSub` offers for causal topics beside publishing, as `ps.multicast`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from kafka_pubsub.multicast.dead_letters import MulticastDeadLetter, MulticastDeadLetters
from kafka_pubsub.multicast.multicast import Multicast
from kafka_pubsub.multicast.status import CausalStatus
from kafka_pubsub.services.calls import ServiceCalls

__all__ = ["CausalTopics"]


class _Named(Protocol):
    @property
    def name(self) -> str: ...


class CausalTopics(ServiceCalls[MulticastDeadLetter]):
    """The causal topics of a cluster; `PubSub.multicast` gives it.

    A dead letter is a message that a causal topic refused. `replay` gives it a new place in the order.
    """

    def __init__(
        self, multicast: Callable[[], Multicast], letters: Callable[[], MulticastDeadLetters]
    ) -> None:
        super().__init__(letters)
        self._multicast = multicast

    def status(
        self, topic: str | _Named | None = None, *, on_read: Callable[[int], object] = lambda count: None
    ) -> list[CausalStatus]:
        """Returns how the partitions of a causal topic are, or of all: what waits there, and which topics hold it up.

        It reads what waits from Kafka alone. `topic`: the topic, or its name; None, the default, means all, those
        that were deleted included. `on_read` gets the number of records that were read since its last call.
        """
        name = topic if topic is None or isinstance(topic, str) else topic.name
        return self._multicast().status(name, on_read)

    def sequencers(self) -> int:
        """Counts the sequencers that run now, in any process; without one, messages to causal topics wait on."""
        return self._multicast().sequencers()
