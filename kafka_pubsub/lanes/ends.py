"""Asks for the ends of lanes, on a thread of its own, because a choice between lanes may have to wait for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from kafka_pubsub.errors import PubSubError
from kafka_pubsub.log.ports import Admin
from kafka_pubsub.log.threads import ThreadedQueue
from kafka_pubsub.model import TopicPartition

__all__ = ["LaneEnds", "Receiver"]

#: Seconds for one request; a leader that doesn't answer holds up choices for so long.
TIMEOUT = 1.0

#: Takes the ends that were found; None: no broker answered.
Receiver = Callable[[Mapping[TopicPartition, int] | None], None]
#: The partitions to ask for, the receiver of the answer, and whether open transactions count.
Request = tuple[Sequence[TopicPartition], Receiver, bool]


class LaneEnds:
    """The requests of one stream; the thread starts with the first."""

    def __init__(self, admin: Admin, name: str) -> None:
        self._admin = admin
        self._requests: ThreadedQueue[Request] = ThreadedQueue(self._work, name)

    def ask(
        self,
        places: Sequence[TopicPartition],
        answer: Receiver,
        *,
        whole: bool = False,
    ) -> None:
        """Asks for the ends of these partitions; calls `answer` on the thread. `whole`: open transactions count."""
        self._requests.put((places, answer, whole))

    def close(self) -> None:
        """Ends the thread after the request that it makes now; doesn't wait for it."""
        self._requests.close(0.0)

    def _work(self) -> None:
        while (request := self._requests.get()) is not None:
            places, answer, whole = request
            try:
                found: Mapping[TopicPartition, int] | None = (
                    self._admin.high_watermarks(places)
                    if whole
                    else self._admin.readable_ends(places, TIMEOUT)
                )
            except PubSubError:
                found = None
            answer(found)
