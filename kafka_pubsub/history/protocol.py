"""The events that the client records in a history, from which a checker proves that every promise was kept.

A history belongs to one stream, or to one topic's publisher. The code that builds the client passes `Histories`, or
None, which costs nothing. `observe.history` writes a history to a file; `tests/checker` compares the files of all
processes.

Rules
1. Any thread may call these methods. When a call returns, a SIGKILL can't lose its event any more.
2. A cause is recorded before it can take effect, a result after it came: a delivery before its callback begins, an ack
   before the stream's runner can see it, a commit before it is sent, the answer after it came. So in the file each
   cause stands before its effects.
3. A message is named by its origin (partition and offset in the home topic), wherever it is now. `retry` is its offset
   in the retry topic if it is there. A lane's partition has a number beyond those of the topic itself (`number_of`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from kafka_pubsub.config import SubscriptionRecord
from kafka_pubsub.model import Message, Run
from kafka_pubsub.partition_id import PartitionId

__all__ = ["Histories", "History", "Move", "PublishHistory", "Standing", "number_of"]

#: More than a topic has partitions.
_STRIDE = 2**20


def number_of(partition: PartitionId) -> int:
    """Returns the number of a partition in a history."""
    return partition.lane * _STRIDE + partition.partition


class Standing(NamedTuple):
    """A stored position, and the finished runs above it in its metadata."""

    position: int
    runs: Sequence[Run] = ()


class Move(NamedTuple):
    """A message that moves to the end of the retry topic."""

    offset: int
    #: Its present offset in the retry topic; None: it is in the home topic.
    retry: int | None
    #: The number of its next delivery.
    attempt: int
    #: Seconds since 1970; None: it is parked until it is released.
    due: float | None
    #: The reason, `Why` in lower case; for a person who reads the history.
    why: str


class History(Protocol):
    """Receives the events of one stream. `epoch` numbers the ownership, `attempt` the delivery."""

    # Ownership

    def assign(
        self, partition: int, epoch: int, main: Standing, retry: Standing | None, retry_end: int
    ) -> None:
        """Records that an ownership begins, or continues under its old epoch, with the stored positions.

        `retry_end` is the high watermark up to which the retry topic is read before any message is delivered.
        """

    def revoke(self, partition: int, epoch: int, *, lost: bool) -> None:
        """Records that the partition was revoked (called after the answer to the last commit) or lost."""

    # Deliveries, acks and nacks

    def deliver(
        self,
        message: Message,
        partition: int,
        offset: int,
        epoch: int,
        attempt: int,
        retry: int | None = None,
        batch: int | None = None,
    ) -> None:
        """Records that a callback is about to get the message; messages handed over in one call share a `batch`."""

    def handler_end(self, partition: int, offset: int, epoch: int, error: str | None = None) -> None:
        """Records that the callback has returned or raised. A message from `receive` has no callback: call at once."""

    def ack(self, partition: int, offset: int, epoch: int, attempt: int) -> None:
        """Records an ack that isn't known to be late."""

    def nack(
        self,
        partition: int,
        offset: int,
        epoch: int,
        attempt: int,
        delay: float | None,
        *,
        rejected: bool = False,
    ) -> None:
        """Records a nack, or an error that the callback raised, that isn't known to be late.

        `rejected`: the callback gave the message up, so it must not be delivered again.
        """

    def extend(self, partition: int, offset: int, epoch: int, attempt: int, seconds: float) -> None:
        """Records that the deadline is moved."""

    def stale(self, verb: str, partition: int, offset: int, epoch: int, attempt: int) -> None:
        """Records that an ack, a nack or an extension came too late and changes nothing."""

    def expire(self, partition: int, offset: int, epoch: int, attempt: int) -> None:
        """Records that the core has ended the lease at its deadline."""

    def durable_ack(self, partition: int, offset: int, epoch: int, attempt: int) -> None:
        """Records that the future of `ack_with_response` is about to resolve: the ack is stored."""

    # Writes. `number` is the number of the request, unique in the stream; partitions in one request share it.

    def relocate(self, number: int, partition: int, epoch: int, moves: Sequence[Move]) -> None:
        """Records the moves to the retry topic in transaction `number`, before the `commit` of that transaction."""

    def dead_letter(
        self,
        number: int,
        partition: int,
        offset: int,
        epoch: int,
        retry: int | None,
        attempt: int,
        error: str,
    ) -> None:
        """Records that transaction `number` dead-letters the message, before the `commit` of that transaction."""

    def commit(
        self, number: int, partition: int, epoch: int, main: Standing | None, retry: Standing | None
    ) -> None:
        """Records what is about to be committed; None: nothing in that topic."""

    def answer(
        self,
        number: int,
        partition: int,
        epoch: int,
        accepted: bool | None,
        placed: Sequence[tuple[int, int]] = (),
    ) -> None:
        """Records the log's answer (None: unknown). `placed`: the moved messages' origins and new retry offsets."""

    def close(self) -> None:
        """Ends the history, because the stream has ended cleanly; later events are dropped."""


class PublishHistory(Protocol):
    """Receives the events of one topic's publisher."""

    def send(self, number: int, key: str | None, data: bytes, attributes: Mapping[str, str]) -> None:
        """Records that message `number` of this publisher is about to be published."""

    def stored(self, number: int, partition: int, offset: int) -> None:
        """Records that the message is stored on its replicas."""

    def failed(self, number: int, error: str) -> None:
        """Records that the message's future failed; the message may be stored nevertheless."""

    def close(self) -> None:
        """Ends the history: the publisher publishes nothing more."""


class Histories(Protocol):
    """A factory of histories."""

    def of_stream(self, subscription: SubscriptionRecord) -> History: ...
    def of_publisher(self, topic: str) -> PublishHistory: ...
