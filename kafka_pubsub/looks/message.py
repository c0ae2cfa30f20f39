"""A message that was only looked at: it has no lease, so it can be neither acked nor nacked."""

from __future__ import annotations

from datetime import datetime
from typing import Literal, NoReturn

from kafka_pubsub.errors import FailedPrecondition
from kafka_pubsub.lane_names import Lane
from kafka_pubsub.model import NO_RECORDS, AckFuture, Message, MessageSink, RecordReader, StoredRecord

__all__ = ["NoLease", "PeekedMessage", "Progress"]

Progress = Literal["ready", "leased", "waiting", "parked"]


class PeekedMessage(Message):
    """An unfinished message of a subscription, as `Subscription.peek` found it.

    `state`: `ready` to be delivered, `leased` to a callback, `waiting` in the retry topic until `next_due` (None:
    behind an earlier message of its key), or `parked` there until you release it. The message has no lease, so it
    can't be acked.
    """

    __slots__ = ("next_due", "state")

    def __init__(
        self,
        record: StoredRecord,
        lane: Lane,
        attempt: int = 1,
        state: Progress = "ready",
        next_due: datetime | None = None,
        records: RecordReader = NO_RECORDS,
    ) -> None:
        super().__init__(record, NoLease(lane, records), attempt)
        self.state = state
        self.next_due = next_due


class NoLease(MessageSink):
    """What stands in for the lease of a message that was only looked at."""

    def __init__(self, lane: Lane, records: RecordReader = NO_RECORDS) -> None:
        self._lane, self._records = lane, records

    def ack(self, message: Message) -> None:
        """Refuses."""
        _refuse(message)

    def nack(self, message: Message, delay: float | None) -> None:
        """Refuses."""
        _refuse(message)

    def dead_letter(self, message: Message, reason: str) -> None:
        """Refuses."""
        _refuse(message)

    def extend(self, message: Message, seconds: float) -> None:
        """Refuses."""
        _refuse(message)

    def ack_with_response(self, message: Message) -> AckFuture:
        """Refuses."""
        _refuse(message)

    def ack_id(self, message: Message) -> str:
        """Refuses."""
        _refuse(message)

    def lane(self) -> tuple[int, bool]:
        """Returns the priority, and whether the message is durable."""
        return self._lane

    def records(self) -> RecordReader:
        """Returns the reader of the message's record."""
        return self._records


def _refuse(message: Message) -> NoReturn:
    raise FailedPrecondition(
        f"message {message.message_id} was only looked at, so it has no lease: receive it with pull() or receive() to "
        "ack or nack it"
    )
