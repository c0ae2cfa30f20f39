"""The two threads of a stream: one polls and sends commits, the other one decides.

Theory. The *fetcher* thread owns the reader: it polls, groups what it read by partition and posts it, and between
two reads it sends commits, without waiting for their answers. The *runner* thread owns the coordinator: in one sweep it
takes what was posted (batches, lease reports, answers), lets the core decide, and hands out work. Rebalance callbacks
run on the fetcher, which asks the runner and waits.

Rules
1. Batches and rebalances are posted to one queue and taken in its order, so that no batch is recorded under an
   ownership to which it doesn't belong (the reader ensures that a read returns nothing of an earlier one).
2. One commit in flight: the next one is sent when the answer has been posted, on any thread. A final commit's answer is
   waited for. A commit without an answer in time is in flight until the library gives it up: until then it may be
   stored, over later commits.
3. The runner never waits for the fetcher, a worker or the log.
4. A fetcher that calls quick callbacks itself (`inline_runner`) also decides in between. It does the runner's work
   under the lock `core`, which no thread holds while it waits or while a callback runs.
5. An error that ends a thread ends the stream, and `failure` holds it.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from kafka_pubsub.config import SubscriptionRecord
from kafka_pubsub.errors import FailedPrecondition, InvariantViolated, PubSubError
from kafka_pubsub.log.clocks import Pulse, WallClock, steady_time
from kafka_pubsub.log.joining import join
from kafka_pubsub.log.ports import LogReader
from kafka_pubsub.log.question import Question
from kafka_pubsub.log.records import Record
from kafka_pubsub.model import Committed, Message, ReadFrom, TopicPartition, decode_ordering_key
from kafka_pubsub.partition_id import PartitionId
from kafka_pubsub.subscribe.coordinator import Coordinator
from kafka_pubsub.subscribe.idle_waits import IdleWaits, WakeUp
from kafka_pubsub.subscribe.inbox import Inbox
from kafka_pubsub.subscribe.partition.commits import COMMIT_INTERVAL
from kafka_pubsub.subscribe.partition.effects import CommitBoth
from kafka_pubsub.subscribe.partition.settings import RECORD_OVERHEAD, Found
from kafka_pubsub.subscribe.paused_partitions import PausedPartitions
from kafka_pubsub.subscribe.retry_topic.layout import by_number
from kafka_pubsub.subscribe.retry_topic.retry_io import RetryIO
from kafka_pubsub.subscribe.stream.inline_scheduler import LOOK, SOON, InlineScheduler
from kafka_pubsub.subscribe.takeover.hot_keys import HotKeys
from kafka_pubsub.subscribe.takeover.listener import AssignmentListener
from kafka_pubsub.subscribe.takeover.log_ends import LogEnds

__all__ = ["StreamRunner"]

log = logging.getLogger("kafka_pubsub.subscriber")

#: The most records of one read: enough to make its cost small for each, few enough to stay in a cache.
READ = 1000
#: Records of the first read, before their size is known; and the share of `max_bytes` for one read.
FIRST_READ, SHARE = 100, 0.125
#: Records for which there must be room before anything is read.
LEAST_READ = 500
#: Seconds that a read waits for the first record, so how late a commit, a pause or a close may be. The second figure
#: holds while callers wait for acks to be durable: it is little beside the commit itself.
READ_WAIT, PROMPT_WAIT = 0.05, 0.003
#: Seconds between looks at running callbacks and deadlines: as often as commits are made.
TICK = COMMIT_INTERVAL
#: Seconds between looks at how much is held, while there is room.
GAUGE = 0.02
#: Seconds that fetching waits for room before partitions are paused; with lanes, urgent messages may wait to be read.
HOLD_OFF, LANED_HOLD_OFF = 0.2, 0.005
#: Batches that may wait for the runner.
POSTED = 4

Answer = TypeVar("Answer")


class StreamRunner:
    """Runs one coordinator on one reader. The reports of its callbacks come through `inbox`."""

    def __init__(
        self,
        reader: LogReader,
        record: SubscriptionRecord,
        process: int,
        *,
        look_up: Callable[[], SubscriptionRecord],
        on_end: Callable[[], None],
        on_handed_out: Callable[[str, Message], None],
        watch: Callable[[], None] | None = None,
        clock: Callable[[], float] = steady_time,
        wall: Callable[[], float] = time.time,
        retry_side: RetryIO,
    ) -> None:
        self.coordinator: Coordinator
        self._runner: threading.Thread | None
        self._fetcher: threading.Thread | None
        self.inbox = Inbox(
            process, on_handed_out, lambda: self.coordinator, self.wake, self.take_over, self.make_way
        )
        self.failure: BaseException | None = None
        self._reader = reader
        self._on_end, self._watch = on_end, watch
        self.subscription = record.name
        self.clock = clock
        self._prompt = record.options.exactly_once
        #: Whether callbacks wait for a commit, as the runner saw it last.
        self._hurried = False
        self.wall = WallClock(wall)
        self.rebalances = AssignmentListener(self, reader, record, look_up, retry_side)
        self._ends = LogEnds(self, self.rebalances, reader)
        self._hot_keys = HotKeyWarnings(record)
        #: Batches and calls for the runner, in order (rule 1).
        self._posted: deque[Callable[[], None]] = deque()
        #: Batches and records: those posted, which the fetcher counts, and those taken, which the runner counts.
        self._fetched = self._booked = self._records_read = self._records_booked = 0
        self._wake_up = WakeUp()
        #: Whether the runner sleeps; `inbox.asleep` only if no thread does its work meanwhile.
        self._dozing = False
        #: Commits for the fetcher.
        self._to_commit: deque[dict[PartitionId, CommitBoth]] = deque()
        self._pauses = PausedPartitions(reader, self.rebalances.place)
        #: When to look at running callbacks next, when at how much is held, and when something becomes due by itself.
        self._tick_at = self._gauge_at = 0.0
        self._pulse = Pulse()
        self._wake_at: float | None = None
        self._idling = IdleWaits()
        #: Records that may be fetched, as the runner saw it last, and records of one read, by their size so far.
        self._room = READ
        self._most = FIRST_READ
        #: Set when a fetcher that waits for room should look again.
        self._drained = threading.Event()
        #: Set by the fetcher: waiting for room hasn't helped.
        self._waited = False
        self._fetching = self._running = True
        self._runner = self._fetcher = None
        #: Held by the thread that does the runner's work: its own thread, or a fetcher that runs inline (rule 4).
        self.core = threading.RLock()
        self.inline = InlineScheduler(self, ordered=record.options.message_ordering)
        self.book = self.inline.book

    # Life

    def start(self, name: str) -> None:
        """Starts the threads; they end by themselves after `finish`, or when one of them fails."""
        self._runner = self._thread(self._run_runner, name)
        self._fetcher = self._thread(self._run_fetcher, name)

    def _thread(self, role: Callable[[], None], name: str) -> threading.Thread:
        name = f"{name}-{role.__name__[5:]}"
        thread = threading.Thread(target=self._guarded, args=(role,), name=name, daemon=True)
        thread.start()
        return thread

    def _guarded(self, role: Callable[[], None]) -> None:
        try:
            role()
        except BaseException as error:
            if not isinstance(error, PubSubError):
                log.exception("the %s failed", role.__name__[5:])
            self.fail(error)

    def fail(self, error: BaseException) -> None:
        """Ends the stream because of `error`."""
        if self.failure is None:
            if not isinstance(error, PubSubError):
                error = InvariantViolated(f"the stream failed: {error!r}; please report this")
            self.failure = error
        self._on_end()

    def begin_nothing_more(self) -> None:
        """Begins nothing more, and returns when that holds: a worker pool that ends afterwards starts no thread."""
        with contextlib.suppress(FailedPrecondition):  # the runner has failed, so it begins nothing
            self.ask(self._begin_nothing_more)

    def _begin_nothing_more(self) -> None:
        self.coordinator.stop()
        self.take_over()

    def finish(self, timeout: float | None = 10.0) -> None:
        """Leaves the group, with a final commit, and ends the threads."""
        self._fetching = False
        self.post(self._catch_up)  # checkpoints of the close begin while the fetcher's read ends
        self.take_over()
        self._drained.set()
        until = None if timeout is None else time.monotonic() + timeout
        join(self._fetcher, until, self.subscription)  # to leave the group it needs the runner
        self._running = False
        self.wake()
        join(self._runner, until, self.subscription)
        if not self._runner_alive():
            self.coordinator.end(self.clock())
        self.rebalances.end()
        self.inbox.ended.set()
        self.inbox.acks.end()

    # Called by other threads

    def sleep(self, seconds: float) -> None:
        """Waits for `seconds`."""
        time.sleep(seconds)

    def wake(self) -> None:
        """Wakes the runner."""
        self.inbox.asleep = False
        self._wake_up.put(None)

    def catch_up(self) -> None:
        """Makes the runner take all reports and decide on them; waits until it has."""
        self.ask(self._catch_up)

    def _catch_up(self) -> None:
        now = self.clock()
        self.inbox.take_reports(now)
        self.coordinator.tick(now, self.wall.offset(self.clock))

    def post(self, call: Callable[[], None]) -> None:
        """Queues `call` for the runner."""
        self._posted.append(call)
        self.wake()

    def ask(self, call: Callable[[], Answer], timeout: float | None = None) -> Answer:
        """Runs `call` on the runner and waits for its answer."""
        question = Question(call)
        self.post(question.run)
        return question.wait(self._runner_alive, timeout)

    def _runner_alive(self) -> bool:
        return self._runner is not None and self._runner.is_alive()

    # The runner

    def _run_runner(self) -> None:
        while self._running or self._posted:
            with self.core:
                now = self.clock()
                if self.inline.stands(now):
                    self.take_over()
                if self.inline.run is None:  # else the fetcher does it, within milliseconds
                    self.step(now, hand_out=not self.inline.soon(now))
            if self._watch is not None:
                self._watch()
            self._sleep()

    def stand_in_ends(self) -> None:
        """Wakes the runner if it would oversleep, because the fetcher no longer does its work."""
        self.inbox.asleep = self._dozing
        if self.inbox.asleep and (
            self._idling.oversleeps(self.clock(), TICK) or self._posted or self.inbox.has_reports()
        ):
            self.wake()

    def _sleep(self) -> None:
        with self.core:
            inline = self.inline.run is not None
            self._dozing, self.inbox.asleep = True, not inline
            now = self.clock()
            wait = LOOK if inline else self._idling.sleep(now, SOON if self.inline.soon(now) else TICK)
        if not inline and (self._posted or self.inbox.has_reports()):
            self.inbox.asleep = self._dozing = False
            return
        self._wake_up.wait(wait)
        self.inbox.asleep = self._dozing = False

    def step(self, now: float, *, hand_out: bool = True, inline: bool = False) -> None:
        """Does one sweep: takes what was posted, ticks, hands out work (`Coordinator.deliver`) and commits."""
        coordinator = self.coordinator
        self.look_alive(now)
        self.take_posted()
        self.inbox.take_reports(now)
        if now >= self._tick_at or (self._wake_at is not None and now >= self._wake_at):
            self._tick_at = now + TICK
            coordinator.tick(now, self.wall.offset(self.clock))
        if hand_out:
            inline = inline and self.inline.run is not None  # else it was taken over
            coordinator.deliver(now, inline=self.inline.pace.limit(now) if inline else 0)
        if self._room < LEAST_READ or now >= self._gauge_at or coordinator.chooser.turned:
            self._gauge_at = now + GAUGE
            self._flow()
        attention = coordinator.partitions.attention
        self._hurried = attention.hurried
        self.inline.pace.beside(attention.careful)
        if commits := coordinator.take_commits():
            self._to_commit.append(commits)
            self._drained.set()
        self._wake_at = coordinator.wakeup_at()
        busy = coordinator.restless or self._room < LEAST_READ
        self._idling.swept(now, busy=busy, wake_at=self._wake_at)

    def look_alive(self, now: float) -> None:
        """Finds out whether this process stood still, before any callback begins."""
        if away := self._pulse.away(now):
            log.warning("subscription %r: this process stood still for %.1f s", self.subscription, away)
            self.take_over()
            self.coordinator.doubt(now)

    def take_posted(self) -> None:
        """Makes the calls posted so far, in order; later ones wait, or a busy fetcher left no time for others."""
        for _ in range(len(self._posted)):
            self._posted.popleft()()

    def _flow(self) -> None:
        partitions = self.coordinator.partitions
        windows = self.coordinator.chooser.windows_in_use
        room = partitions.room(windows) if partitions.owned else READ
        if self._room < LEAST_READ <= room:
            self._drained.set()
        self._room = room
        change = partitions.flow(windows, waited=self._waited)
        self._waited = False
        if change.pause or change.resume:
            self._pauses.turn(change)
            self._drained.set()

    # The fetcher

    def _run_fetcher(self) -> None:
        self._reader.subscribe(self.rebalances.topics(), self)
        self._run_fetcher_on()

    def _run_fetcher_on(self) -> None:
        mine = True
        try:
            while mine and self._fetching:
                if mine := self.inline.let_lanes_go():
                    self._make_room()
                    mine = self.fetch(self._read_wait())
                if mine:
                    self.commit_posted()
        finally:
            if mine:
                self._ends.leave(in_order=not self._fetching)

    def _read_wait(self) -> float:
        """Returns the seconds of a read: short while callbacks wait for commits, because a commit can't wake a read."""
        unbooked = self._fetched != self._booked
        out = unbooked or self.coordinator.in_flight() or self.inbox.acks.waiting
        if self._hurried or (self._prompt and out):
            return PROMPT_WAIT
        busy = unbooked or self._to_commit or not self.rebalances.pairs.settled
        return READ_WAIT if busy else self._idling.read_wait(self.clock(), READ_WAIT)

    def _make_room(self) -> None:
        until = self.clock() + (LANED_HOLD_OFF if self.coordinator.laned else HOLD_OFF)
        while self._behind() and self._fetching:
            if not self._drained.wait(max(0.0, until - self.clock())):
                self._waited = True
                break
            self._drained.clear()
            self.commit_posted()
        self._pauses.work()

    def commit_posted(self) -> None:
        """Sends the commits that the runner has decided on."""
        if not self._to_commit or self._reader.unanswered():
            return
        together: dict[PartitionId, CommitBoth] = {}
        while self._to_commit:  # a request takes as long for one partition as for all
            together |= self._to_commit.popleft()
        self.send(self.coordinator.current(together))

    def send(self, commits: Mapping[PartitionId, CommitBoth]) -> None:
        """Sends commits; their answers are posted when they come."""
        if commits:
            self.rebalances.commit(commits, lambda accepted: self._answered(commits, accepted))

    def _answered(
        self, commits: Mapping[PartitionId, CommitBoth], accepted: Mapping[PartitionId, bool]
    ) -> None:
        self.post(lambda: self.coordinator.answered(commits, accepted, self.clock()))

    def commit(self, commits: Mapping[PartitionId, CommitBoth]) -> None:
        """Sends final commits, after the answer to the commit before, and waits for their answer.

        Without an answer in time they count as refused: the membership ends then (`rejoining_reader`).
        """
        if not commits:
            return
        if self._reader.settle():
            self.send(commits)
        if not self._reader.settle():
            self._answered(commits, dict.fromkeys(commits, False))

    def _behind(self) -> bool:
        return self._available() < LEAST_READ or self._fetched - self._booked >= POSTED

    def _available(self) -> int:
        return self._room - (self._records_read - self._records_booked)

    def fetch(self, wait: float) -> bool:
        """Reads once, and posts the records or runs them inline; False if another thread is the fetcher now."""
        inline = self.inline.read_limit(self.clock())
        most = max(self._least(), min(inline or READ, self._most, self._available()))
        self._ends.look_at(self.coordinator.chooser.stuck)  # before the read: its records aren't posted yet
        records = self._reader.read(most, wait)
        if not (read := len(records)):
            self._ends.look()
        records = self.rebalances.pairs.sort_out(records)
        if not records:
            return not self.inline.soon(self.clock()) or self.inline.try_inline({}, 0) is not False
        mean = sum(map(len, records)) / len(records) + RECORD_OVERHEAD
        coordinator, layout = self.coordinator, self.rebalances.layout
        gate = coordinator.partitions.gate
        self._most = max(1, int(SHARE * gate.max_bytes / mean))
        read_now = by_number(records, layout)
        batches, count = coordinator.chooser.cut(
            read_now, layout, coordinator.partitions, self._reader, self.post
        )
        self._hot_keys.observe(batches.values())
        if count <= inline or (inline and self.coordinator.laned):
            mine = self.inline.try_inline(batches, count, more=read >= most)
            if mine is not None:
                return mine
        self.hand_in(batches, count)
        return True

    def hand_in(self, batches: Mapping[PartitionId, Sequence[Record]], count: int) -> None:
        """Hands the records that were read to the runner."""
        self._fetched += 1
        self._records_read += count
        self.post(lambda: self._book(batches, count))

    def _least(self) -> int:
        """Returns the least records of a read, for any room and pace: many, if retries hold up everything."""
        partitions = self.coordinator.partitions
        if self.rebalances.pairs.rebuilding:
            return READ
        stuck = self.coordinator.chooser.stuck or len(partitions.gate.paused) >= len(partitions.owned)
        return min(LEAST_READ, self._most) if stuck else 1

    def post_batch(self, take: Callable[[], None]) -> None:
        """Posts a batch that needs no room, only its place in the order."""
        self._fetched += 1

        def book() -> None:
            self._booked += 1
            self._drained.set()
            take()

        self.post(book)

    def _book(self, batches: Mapping[PartitionId, Sequence[Record]], count: int) -> None:
        self._booked += 1
        self._records_booked += count
        self._gauge_at = 0.0
        self._drained.set()
        self.coordinator.fetched(batches, self.clock())

    def take_over(self) -> None:
        """Ends an inline run that is under way: its callback goes on, but its thread is no longer the fetcher."""
        with self.core:
            if (run := self.inline.take_over()) is None:
                return
            name = run.thread.name
            self._fetcher = self._thread(self._run_fetcher_on, name.rpartition("-")[0])
        self.wake()

    def make_way(self) -> None:
        run = self.inline.run
        if run is not None and run.thread is threading.current_thread():
            self.take_over()

    # Called at rebalances, on the fetcher

    def assigned(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, ReadFrom]:
        return self.rebalances.assigned(partitions)

    def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self.rebalances.revoked(partitions)

    def lost(self, partitions: Sequence[TopicPartition]) -> None:
        self.rebalances.lost(partitions)

    def failed(self, partition: TopicPartition | None, error: PubSubError, fatal: bool) -> None:
        self.rebalances.failed(partition, error, fatal)

    def fetches(self, thread: threading.Thread) -> bool:
        """Returns whether `thread` is the fetcher and isn't told to end."""
        return self._fetching and thread is self._fetcher

    def take_on(
        self,
        stored: Mapping[PartitionId, Committed],
        begin: Callable[[PartitionId, Committed], Found],
        beside: Mapping[PartitionId, Committed],
    ) -> Mapping[PartitionId, int]:
        """Takes partitions on, on the runner; returns the offset at which to read each."""
        positions = self.ask(lambda: self.coordinator.assign(stored, begin, self.clock(), beside))
        self._pauses.forget(stored)
        return positions

    def announce(self, numbers: Sequence[PartitionId]) -> None:
        """Makes the first commits, for which the first deliveries wait, before anything is read."""
        self._to_commit.append(self.ask(lambda: self.coordinator.first_commits(numbers, self.clock())))
        self.commit_posted()

    def final_commits(self, numbers: Sequence[PartitionId]) -> dict[PartitionId, CommitBoth]:
        """Gives partitions up, on the runner; returns their final commits."""
        return self.ask(lambda: self._revoke(numbers, self.clock()))

    def _revoke(self, numbers: Sequence[PartitionId], now: float) -> dict[PartitionId, CommitBoth]:
        self.coordinator.partitions.begin_nothing(numbers)  # what is acked later would come again
        self.inbox.take_reports(now)  # earlier acks that still wait belong to the final commits
        self.coordinator.progress(now)
        return self.coordinator.revoke(numbers, now)

    def lose(self, numbers: Sequence[PartitionId]) -> None:
        """Forgets partitions, on the runner."""
        self.ask(lambda: self.coordinator.lose(numbers, self.clock()))


class HotKeyWarnings:
    """Warns when one key carries most of a topic. Not for subscriptions whose keys set no order."""

    def __init__(self, record: SubscriptionRecord) -> None:
        self._subscription, self._topic = record.name, record.topic
        self._ordered = record.options.message_ordering
        self._keys = HotKeys()

    def observe(self, batches: Iterable[Sequence[Record]]) -> None:
        """Counts the keys of the records that were read."""
        for records in batches if self._ordered else ():
            if (hot := self._keys.observe(records)) is not None:
                log.warning(
                    "subscription %r: ordering key %r carries %.0f %% of what topic %r delivers; a key's messages are "
                    "handled one at a time, so more workers don't help it: spread them over more keys",
                    self._subscription,
                    decode_ordering_key(hot.key),
                    100 * hot.share,
                    self._topic,
                )
