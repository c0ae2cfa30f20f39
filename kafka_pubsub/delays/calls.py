"""What a `PubSub` offers for delayed messages, as `ps.delays`."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kafka_pubsub.delays.dead_letters import DelayDeadLetter, DelayDeadLetters
from kafka_pubsub.delays.publisher import DelayedPublisher
from kafka_pubsub.delays.topics import DelayTopics
from kafka_pubsub.delays.waiting import WaitingMessage
from kafka_pubsub.services.calls import ServiceCalls

__all__ = ["Delays"]


class Delays(ServiceCalls[DelayDeadLetter]):
    """The delayed messages of a cluster, of all topics; `PubSub.delays` gives it.

    A dead letter is a delayed message that no router could deliver. `replay` brings it home.
    """

    def __init__(
        self,
        delayed: Callable[[], DelayedPublisher],
        topics: Callable[[], DelayTopics],
        letters: Callable[[], DelayDeadLetters],
    ) -> None:
        super().__init__(letters)
        self._delayed, self._topics = delayed, topics

    def waiting(
        self,
        message_id: str | None = None,
        *,
        bodies: bool = False,
        on_read: Callable[[int], object] = lambda count: None,
    ) -> Iterator[WaitingMessage]:
        """Yields the delayed messages that wait; with a `message_id` only that one, with its data.

        It reads what waits, partition by partition, and keeps one partition's messages in memory: with `bodies` with
        their `data` and `attributes`, otherwise (default) without. `on_read` gets the number of records that were read
        since its last call.
        """
        return self._delayed().waiting(message_id, on_read, bodies=bodies)

    def cancel(self, message_id: str, *, timeout: float = 10.0) -> bool:
        """Cancels a delayed message; see `Topic.cancel`. `timeout`: seconds, 10 by default."""
        return self._delayed().cancel(None, message_id, timeout)

    def routers(self) -> int:
        """Counts the delay routers that run now, in any process; without one, delayed messages wait on."""
        return self._topics().routers()
