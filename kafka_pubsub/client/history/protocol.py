"""What the client tells a history: the steps from which a checker can prove, afterwards, that all promises were kept.

Theory. A history is the evidence of one stream, or of one topic's publisher. The code that builds the client passes
`Histories`, or None, which costs nothing. `observe.history` writes a history to a file; `tests/checker` compares the
files of all processes.

Rules
1. A call returns when a SIGKILL can't lose its event any more; any thread may call.
2. A cause is told before it can take effect, and a result is told after it came: a delivery before its callback
   begins, an ack before the runner can see it, a commit before it is sent, its answer after it came. So in the file
   each cause stands before its effects.
3. A message is named by its origin - partition and offset of the home topic - wherever it lies now; `retry` is its
   offset in the retry topic when it lies there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from kafka_pubsub.config import SubscriptionRecord
from kafka_pubsub.core.commit.offsets import Run
from kafka_pubsub.model import Message

__all__ = ["Histories", "History", "Move", "PublishHistory", "Standing"]


class Standing(NamedTuple):
    """A stored position, and the runs that its map calls finished above it."""

    position: int
    runs: Sequence[Run] = ()


class Move(NamedTuple):
    """A message on its way to the end of the retry topic."""

    offset: int
    #: Where it lies in the retry topic now; None: in the home topic.
    retry: int | None
    #: Which delivery the next one will be.
    attempt: int
    #: Seconds since 1970; None: not before it is released.
    due: float | None
    #: nack, expire, backlog, map ...; for a reader of the history.
    why: str


class History(Protocol):
    """Receives the events of one stream. `epoch` is that of the ownership, `attempt` that of the delivery."""

    # Ownership

    def assign(
        self, partition: int, epoch: int, main: Standing, retry: Standing | None, retry_end: int
    ) -> None:
        """An ownership begins, or goes on under its old epoch: with what the log has stored.

        `retry_end` is the high watermark up to which the retry topic is read before anything is delivered.
        """

    def revoke(self, partition: int, epoch: int, *, lost: bool) -> None:
        """The partition went; if it wasn't lost, after the answer to the last commit."""

    # Deliveries and verdicts

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
        """A callback is about to get the message; messages handed over in one call share a `batch`."""

    def handler_end(self, partition: int, offset: int, epoch: int, error: str | None = None) -> None:
        """The callback has returned or raised. A message handed out by `receive` has none: tell it at once."""

    def ack(self, partition: int, offset: int, epoch: int, attempt: int) -> None:
        """An ack that wasn't found to be late when it was given."""

    def nack(self, partition: int, offset: int, epoch: int, attempt: int, delay: float | None) -> None:
        """A nack, or a callback that raised, not found to be late when it was given."""

    def extend(self, partition: int, offset: int, epoch: int, attempt: int, seconds: float) -> None:
        """The deadline was moved."""

    def stale(self, verb: str, partition: int, offset: int, epoch: int, attempt: int) -> None:
        """A verdict came too late and changes nothing."""

    def expire(self, partition: int, offset: int, epoch: int, attempt: int) -> None:
        """The core has taken the lease back at its deadline."""

    def durable_ack(self, partition: int, offset: int, epoch: int, attempt: int) -> None:
        """`ack_with_response` is about to resolve: the log knows the ack."""

    # What is written. `number` is the request's, unique in the stream; partitions in one request share it.

    def relocate(self, number: int, partition: int, epoch: int, moves: Sequence[Move]) -> None:
        """Tells that these go to the retry topic in transaction `number`, before the commit that belongs to it."""

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
        """Tells that the message goes to the dead-letter topic in transaction `number`, before its commit."""

    def commit(
        self, number: int, partition: int, epoch: int, main: Standing | None, retry: Standing | None
    ) -> None:
        """This is being committed; None: of that topic, nothing."""

    def answer(
        self,
        number: int,
        partition: int,
        epoch: int,
        accepted: bool | None,
        placed: Sequence[tuple[int, int]] = (),
    ) -> None:
        """Tells the log's answer (None: unknown). `placed`: where moved messages lie now (origin, retry offset)."""

    def close(self) -> None:
        """Ends the history: the stream has ended cleanly, and later events are dropped."""


class PublishHistory(Protocol):
    """Receives the events of one topic's publisher."""

    def send(self, number: int, key: str | None, data: bytes, attributes: Mapping[str, str]) -> None:
        """Message `number` of this publisher is about to be published."""

    def stored(self, number: int, partition: int, offset: int) -> None:
        """It is on its replicas."""

    def failed(self, number: int, error: str) -> None:
        """Its future failed; it may have been stored nevertheless."""

    def close(self) -> None:
        """Nothing more is published."""


class Histories(Protocol):
    """Where histories come from."""

    def of_stream(self, subscription: SubscriptionRecord) -> History: ...
    def of_publisher(self, topic: str) -> PublishHistory: ...
