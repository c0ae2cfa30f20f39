"""A stream in a cluster whose clock a test moves: it goes by that clock, and says what is under way.

Theory. Due times and deadlines are those of the movable clock; threads still wait for each other in real time. The
runner publishes at the end of each sweep what the sweep has left under way, so that the clock knows when a stream has
done everything that was due.

Rules
1. Each sweep ticks, because no time may pass until the next.
2. No callback runs inline, since the clock can't tell how long one takes; and a clock that was moved isn't a process
   that stood still.
3. What other threads post is looked at first, then whether a sweep is under way, then what the last one has left: so
   nothing that is handed over is missed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kafka_pubsub.config import SubscriptionRecord
from kafka_pubsub.errors import PubSubError
from kafka_pubsub.log.ports import LogReader, MovableClock
from kafka_pubsub.model import Message
from kafka_pubsub.subscribe.partition.leases import LeaseState
from kafka_pubsub.subscribe.retry_topic.retry_io import RetryIO
from kafka_pubsub.subscribe.stream.runner import READ_WAIT, StreamRunner
from kafka_pubsub.subscribe.workers.inline_runner import Pace
from kafka_pubsub.subscribe.workers.pull_queue import PullQueue
from kafka_pubsub.subscribe.workers.thread_workers import WorkerPool

__all__ = ["VirtualRunner"]


class _NeverInline(Pace):
    """No pace allows an inline run (rule 2)."""

    def limit(self, now: float) -> int:
        return 0


class VirtualRunner(StreamRunner):
    """Runs one coordinator on one reader, by a movable clock; it is a sleeper of the clock."""

    def __init__(
        self,
        reader: LogReader,
        record: SubscriptionRecord,
        process: int,
        *,
        look_up: Callable[[], SubscriptionRecord],
        on_end: Callable[[], None],
        on_handed_out: Callable[[str, Message], None],
        watch: Callable[[], None] | None,
        retry_side: RetryIO,
        moved: MovableClock,
    ) -> None:
        super().__init__(
            reader,
            record,
            process,
            look_up=look_up,
            on_end=on_end,
            on_handed_out=on_handed_out,
            watch=watch,
            clock=moved.now,
            wall=moved.now,
            retry_side=retry_side,
        )
        self._moved, self._look_up_record = moved, look_up
        self.inline.pace = _NeverInline()
        self._worker_pool: WorkerPool
        self._sweeping = False
        # What the last sweep has left, in words, and how many callbacks ran or waited then.
        self._left, self._callbacks = "it joins its group", 0

    def serve(self, worker_pool: WorkerPool) -> None:
        """Sets the worker pool; called before `start`."""
        self._worker_pool = worker_pool

    # Life

    def start(self, name: str) -> None:
        self._moved.enter(self)
        super().start(name)

    def finish(self, timeout: float | None = 10.0) -> None:
        super().finish(timeout)
        self._moved.leave(self)

    # The runner

    def look_alive(self, now: float) -> None:
        """Does nothing (rule 2)."""

    def step(self, now: float, *, hand_out: bool = True, inline: bool = False) -> None:
        self._sweeping = True
        self._tick_at = self._gauge_at = 0.0
        super().step(now, hand_out=hand_out, inline=inline)
        self._callbacks = self._count_callbacks()
        self._left = next(self._find_left(), "")
        self._sweeping = False

    def _read_wait(self) -> float:
        return min(
            READ_WAIT, super()._read_wait()
        )  # a close waits for the read; idle streams of a test are few

    def _count_callbacks(self) -> int:
        if isinstance(self._worker_pool, PullQueue):
            return 0  # `receive` leases a message only when a call takes it
        held = (LeaseState.RUNNING, LeaseState.EXPIRED)
        return sum(lease.state in held for each in self.coordinator.partitions.all() for lease in each.active)

    def _find_left(self) -> Iterator[str]:
        """Yields what the sweep has left under way."""
        coordinator = self.coordinator
        if not self.rebalances.joined or not self.rebalances.pairs.settled:
            yield "it joins its group"
        if self._pauses.pending or any(each.asking for each in coordinator.partitions.all()):
            yield "it waits for commits, moves or reads"
        if coordinator.laned and (coordinator.chooser.asking or coordinator.chooser.stuck):
            yield "it asks which lane goes next"
        leases = [each.lease for each in self._worker_pool.running() if each.begun]
        if any(each.state is LeaseState.RUNNING and each.deadline is None for each in leases):
            yield "a callback has just begun"

    # As a sleeper of the clock

    def due_at(self) -> float | None:
        return self._wake_at

    def under_way(self, *, callbacks: bool) -> str:
        if not self._fetching or self.failure is not None:
            return ""  # it ends
        found = ""
        if self._posted or self.inbox.has_reports() or self._fetched != self._booked or self._sweeping:
            found = "it takes what came"
        elif callbacks and self._callbacks:
            found = "a callback runs" if self._callbacks == 1 else f"{self._callbacks} callbacks run or wait"
        else:
            found = self._left or self._learn_of_lanes()
        return found and f"subscription {self.subscription!r}: {found}"

    def _learn_of_lanes(self) -> str:
        """Has the stream read lanes that are new, which it would notice within a second."""
        rebalances = self.rebalances
        try:
            record = self._look_up_record()
            if rebalances.layout_of(record).identity == rebalances.layout.identity:
                return ""
            rebalances.noticed(record)
        except PubSubError:
            return ""  # the subscription is gone, so its streams end
        return "it takes on new lanes"
