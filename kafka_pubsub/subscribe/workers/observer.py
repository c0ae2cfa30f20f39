"""An observer of a stream; by default there is none. `recorder` records a history with one.

It is told of causes before they take effect, and of results before they have one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from kafka_pubsub.config import SubscriptionRecord
from kafka_pubsub.model import CommitAnswers, Committed, Message
from kafka_pubsub.partition_id import PartitionId
from kafka_pubsub.subscribe.partition.effects import CommitBoth, Effect, StoreMoves
from kafka_pubsub.subscribe.partition.settings import Found

__all__ = ["UNOBSERVED", "CommitsNoted", "MessageRun", "StreamObserver", "Tracing"]


class MessageRun(Protocol):
    """A key's messages that one callback gets together (`lease_runner.BatchLeaseRunner`), as an observer sees them."""

    messages: list[Message]
    #: How many are acked, and how many of these the observer got before the end.
    done: int
    recorded: int
    withdrawn: bool


#: Of each commit that was noted: the number of its request, and the epoch of its ownership.
CommitsNoted = Mapping[PartitionId, tuple[int, int]]


class StreamObserver:
    """An observer of callbacks, of ownerships and of writes. This one does nothing, so that others pay nothing."""

    #: The class of the stream's messages; None: the ordinary one.
    message: type[Message] | None = None
    #: Held while an ack or a nack is recorded and takes effect.
    step: AbstractContextManager[object] = nullcontext()

    def around(self, callback: Callable[[Message], object]) -> Callable[[Message], object]:
        """Returns the callback that is called in the place of the user's."""
        return callback

    def around_coroutine(
        self, callback: Callable[[Message], Awaitable[object]]
    ) -> Callable[[Message], Awaitable[object]]:
        """Returns the coroutine function that is called in the place of the user's."""
        return callback

    def begins(self, message: Message, batch: int | None = None) -> None:
        """Notes that a message is about to be handed over; messages handed over in one call share a `batch`."""

    def ends(self, message: Message, error: BaseException | None = None) -> None:
        """Notes that the message's callback has returned, or raised `error`."""

    def run_begins(self, messages: Iterable[Message]) -> None:
        """Notes that one callback is about to get these messages together."""

    def run_ends(self, run: MessageRun, delays: Mapping[int, float | None], *, raised: bool) -> None:
        """Notes that this callback has ended; `delays` are those of its nacks, by offset."""

    def durable(self, partition: PartitionId, offset: int, epoch: int, attempt: int) -> None:
        """Notes that the ack of this delivery is durable."""

    def close(self) -> None:
        """Notes that the stream has ended in good order."""

    # Ownerships

    def assigned(
        self, partition: PartitionId, epoch: int, stored: Committed, beside: Committed, begun: Found | None
    ) -> None:
        """Notes that an ownership begins, with the stored positions; `begun` None: it continues where it was."""

    def revoked(self, partitions: Iterable[PartitionId], *, lost: bool) -> None:
        """Notes that partitions were lost, or given up after their final commit was answered."""

    def expiring(self, effects: Sequence[Effect]) -> None:
        """Notes the effects of a tick, which may withdraw leases whose deadline has passed."""

    # Writes

    def storing(self, partition: PartitionId, epoch: int, effect: StoreMoves) -> None:
        """Notes that a transaction is about to be sent."""

    def committing(self, commits: Mapping[PartitionId, CommitBoth]) -> CommitsNoted:
        """Notes that commits are about to be sent; returns a note for the answer."""
        return {}

    def answered(self, noted: CommitsNoted, answers: CommitAnswers) -> None:
        """Notes the log's answers to these commits."""


UNOBSERVED = StreamObserver()


class Tracing(Protocol):
    """Puts spans around the callbacks of a subscription (`observe.tracing`)."""

    def around(
        self, callback: Callable[[Message], object], record: SubscriptionRecord
    ) -> Callable[[Message], object]:
        """Returns the callback to call in the place of this one."""

    def around_coroutine(
        self, callback: Callable[[Message], Awaitable[object]], record: SubscriptionRecord
    ) -> Callable[[Message], Awaitable[object]]:
        """Returns the coroutine function to call in the place of this one."""

    def around_batch(
        self, callback: Callable[[list[Message]], object], record: SubscriptionRecord
    ) -> Callable[[list[Message]], object]:
        """Returns the callback of batches to call in the place of this one."""

    def received(self, messages: Sequence[Message], record: SubscriptionRecord, since: int) -> None:
        """Notes that a `receive`, called at `since` (nanoseconds since 1970), has returned messages."""
