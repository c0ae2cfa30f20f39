"""The interfaces through which the parts of a stream call its runner; `runner.StreamRunner` implements them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

from kafka_pubsub.log.clocks import WallClock
from kafka_pubsub.log.records import Record
from kafka_pubsub.model import Committed
from kafka_pubsub.partition_id import PartitionId
from kafka_pubsub.subscribe.coordinator import Coordinator
from kafka_pubsub.subscribe.inbox import Inbox
from kafka_pubsub.subscribe.partition.effects import CommitBoth
from kafka_pubsub.subscribe.partition.settings import Found

__all__ = ["InlineRunner", "Runner"]

Answer = TypeVar("Answer")


class Runner(Protocol):
    """The calls of the fetcher's thread, which takes partitions on, gives them up and reads."""

    #: A monotonic clock, in seconds.
    clock: Callable[[], float]
    wall: WallClock
    coordinator: Coordinator

    def post(self, call: Callable[[], None]) -> None:
        """Queues a call for the runner, which makes the posted calls in their order."""

    def post_batch(self, take: Callable[[], None]) -> None:
        """Queues a call that records what was read, in the same order."""

    def book(self, take: Callable[[], None]) -> None:
        """Records what was read at once, on the caller's thread."""

    def ask(self, call: Callable[[], Answer], timeout: float | None = None) -> Answer:
        """Makes the call on the runner and returns its answer."""

    def catch_up(self) -> None:
        """Makes the runner take all reports, and waits until it has."""

    def take_on(
        self,
        stored: Mapping[PartitionId, Committed],
        begin: Callable[[PartitionId, Committed], Found],
        beside: Mapping[PartitionId, Committed],
    ) -> Mapping[PartitionId, int]:
        """Takes partitions on, on the runner; returns the offset at which to read each."""

    def announce(self, numbers: Sequence[PartitionId]) -> None:
        """Makes the first commits of partitions that were taken on."""

    def commit(self, commits: Mapping[PartitionId, CommitBoth]) -> None:
        """Sends final commits, and waits for the answer."""

    def commit_posted(self) -> None:
        """Sends the commits that the runner has decided on."""

    def final_commits(self, numbers: Sequence[PartitionId]) -> dict[PartitionId, CommitBoth]:
        """Gives partitions up, on the runner; returns their final commits."""

    def lose(self, numbers: Sequence[PartitionId]) -> None:
        """Forgets partitions, on the runner."""

    def fail(self, error: BaseException) -> None:
        """Ends the stream because of `error`."""

    def fetches(self, thread: threading.Thread) -> bool:
        """Returns whether `thread` is the fetcher and isn't told to end."""


class InlineRunner(Protocol):
    """The calls of a fetcher that calls callbacks itself; meanwhile it does the runner's work and holds `core`."""

    clock: Callable[[], float]
    coordinator: Coordinator
    inbox: Inbox
    core: threading.RLock

    def sleep(self, seconds: float) -> None:
        """Waits for `seconds`."""

    def look_alive(self, now: float) -> None:
        """Finds out whether the process stood still, before any callback begins."""

    def take_posted(self) -> None:
        """Makes the calls that were posted."""

    def step(self, now: float, *, hand_out: bool = True, inline: bool = False) -> None:
        """Does one sweep."""

    def hand_in(self, batches: Mapping[PartitionId, Sequence[Record]], count: int) -> None:
        """Hands the records that were read to the runner."""

    def stand_in_ends(self) -> None:
        """Notes that the fetcher no longer does the runner's work."""
