"""What the parts of a stream ask of its runner; `runner.StreamRunner` is the one there is."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

from kafka_pubsub.client.assignment.start_position import StartPosition
from kafka_pubsub.client.clocks import WallClock
from kafka_pubsub.client.subscribe.coordinator import Coordinator
from kafka_pubsub.client.subscribe.inbox import Inbox
from kafka_pubsub.core.effects import CommitBoth
from kafka_pubsub.core.records import Record
from kafka_pubsub.model import Committed

__all__ = ["InlineRunner", "Runner"]

Answer = TypeVar("Answer")


class Runner(Protocol):
    """Called by the fetcher's thread, which takes partitions on, gives them up and reads."""

    #: Seconds that only ever go up.
    clock: Callable[[], float]
    wall: WallClock
    coordinator: Coordinator

    def post(self, call: Callable[[], None]) -> None:
        """Has the runner make a call, in the order of what is posted."""

    def post_batch(self, take: Callable[[], None]) -> None:
        """Has the runner book what was read, in the same order."""

    def book(self, take: Callable[[], None]) -> None:
        """Books what was read at once, on the caller's thread."""

    def ask(self, call: Callable[[], Answer], timeout: float | None = None) -> Answer:
        """Has the runner make a call, and returns its answer."""

    def catch_up(self) -> None:
        """Has the runner take all reports, and waits for that."""

    def take_on(
        self,
        stored: Mapping[int, Committed],
        begin: Callable[[int, Committed], StartPosition],
        beside: Mapping[int, Committed],
    ) -> Mapping[int, int]:
        """Has the runner take partitions on; returns where to read each."""

    def announce(self, numbers: Sequence[int]) -> None:
        """Commits the first words of partitions that were taken on."""

    def commit(self, commits: Mapping[int, CommitBoth]) -> None:
        """Commits last words, and waits for the answer."""

    def commit_posted(self) -> None:
        """Commits what the runner has decided to commit."""

    def last_words(self, numbers: Sequence[int]) -> dict[int, CommitBoth]:
        """Has the runner give partitions up; returns what is left to commit."""

    def lose(self, numbers: Sequence[int]) -> None:
        """Has the runner forget partitions."""

    def fail(self, error: BaseException) -> None:
        """Ends the stream because of `error`."""

    def fetches(self, thread: threading.Thread) -> bool:
        """Whether `thread` is the fetcher, and goes on."""


class InlineRunner(Protocol):
    """Called by the fetcher while it calls callbacks itself: it decides meanwhile, and holds `core` for that."""

    clock: Callable[[], float]
    coordinator: Coordinator
    inbox: Inbox
    core: threading.RLock

    def nap(self, seconds: float) -> None:
        """Waits a moment."""

    def look_alive(self, now: float) -> None:
        """Finds out whether the process stood still, before anything begins."""

    def take_posted(self) -> None:
        """Makes the calls that were posted."""

    def step(self, now: float, *, hand_out: bool = True, inline: bool = False) -> None:
        """Makes one sweep."""

    def hand_in(self, batches: Mapping[int, Sequence[Record]], count: int) -> None:
        """Has the runner book what was read."""

    def stand_in_ends(self) -> None:
        """The fetcher no longer does what the runner does."""
