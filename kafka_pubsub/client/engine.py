"""The engine of a stream: one thread that polls and commits, and one that decides.

Theory. The *fetcher* thread owns the reader: it polls, groups what it read by partition and posts it, and between
two reads it commits (librdkafka's client lets in one caller at a time, so a commit on another thread would wait
for a read to end, which never stays ended for long). The *runner* thread owns the coordinator: it takes what was
posted - batches, releases, verdicts, answers - in one sweep, lets the core decide, and hands out work. Rebalance
callbacks run on the fetcher, which asks the runner and waits.

Rules
1. Batches and rebalances are posted to one line and taken in its order, so that no batch is booked under an
   ownership that it doesn't belong to (the reader sees to it that a read returns nothing of an earlier one).
2. One commit in flight: the fetcher waits for each answer, and posts it before it reads again, so at a revoke every
   commit has been answered before the last word is sent.
3. The runner never waits for the fetcher, a worker or the log.
4. A fetcher that calls quick callbacks itself (`inline`) decides for itself in between: it is the runner then, one
   at a time by `_core`, which nobody holds while it waits or while a callback runs.
5. Whatever ends a thread ends the stream, and `failure` says why.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Container, Mapping, Sequence
from queue import Empty, SimpleQueue
from typing import TypeVar, cast

from kafka_pubsub.client.batches import HotKeyWarnings, by_partition
from kafka_pubsub.client.coordinator import Coordinator
from kafka_pubsub.client.crews import Inline
from kafka_pubsub.client.inline import LEFT, InlineHolder, Pace, Walk
from kafka_pubsub.client.ownership import Beginning, beginning
from kafka_pubsub.client.ports import LogReader
from kafka_pubsub.config import SubscriptionRecord
from kafka_pubsub.core.commits import COMMIT_INTERVAL
from kafka_pubsub.core.effects import Commit
from kafka_pubsub.core.events import Passed, Record, Release, Settlement, Verdict
from kafka_pubsub.core.leases import Lease
from kafka_pubsub.core.rules import RECORD_OVERHEAD
from kafka_pubsub.errors import (
    BrokerUnavailable,
    DeadlineExceeded,
    FailedPrecondition,
    InvariantViolated,
    NotFound,
    PubSubError,
)
from kafka_pubsub.model import Committed, Message, TopicPartition

__all__ = ["Engine", "by_partition"]

log = logging.getLogger("kafka_pubsub.subscriber")

#: Records asked for in one read: large enough that the cost of a read vanishes among them, small enough that they stay
#: in a processor's cache, and that nobody waits long for the interpreter meanwhile.
READ = 1000
#: Records of the first read, before anybody knows how large they are; and the share of `max_bytes` for one read.
FIRST_READ, SHARE = 100, 0.125
#: Records for which there must be room before anything is read.
LEAST_READ = 500
#: Seconds a read waits for the first record: how late a commit, a pause or a close may be noticed.
READ_WAIT = 0.05
#: Seconds between looks at running handlers and deadlines: as often as there are commits to make of it.
TICK = COMMIT_INTERVAL
#: Seconds between looks at how much is held, while there is room.
GAUGE = 0.02
#: Seconds after which a callback that the fetcher called itself is found to take long.
LOOK = 0.05
#: Seconds that fetching waits for room before partitions are paused: shorter than a rebalance may be delayed.
HOLD_OFF = 0.2
#: Batches that may wait for the runner.
POSTED = 4

#: Seconds that "not found" isn't believed at an assignment: a broker that has just started denies every topic.
DENIED = 10.0
#: Seconds between two tries to take an assignment on.
TRY_AGAIN = 0.5

Answer = TypeVar("Answer")


class Engine:
    """Runs one coordinator on one reader. It is the coordinator's `Reports` and the reader's listener."""

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
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.process = process
        self.failure: BaseException | None = None
        self.ended = threading.Event()
        self.coordinator: Coordinator
        self._reader = reader
        self._record = record
        self._look_up = look_up
        self._on_end = on_end
        self._on_handed_out = on_handed_out
        self._watch = watch
        self.subscription = record.name
        self._clock = clock
        self._hot_keys = HotKeyWarnings(record) if record.options.message_ordering else None
        #: Batches and calls for the runner, in order (rule 1).
        self._posted: deque[Callable[[], None]] = deque()
        #: Batches posted, counted by the fetcher, and taken, counted by the runner.
        self._fetched = self._booked = 0
        #: The same for records.
        self._records_read = self._records_booked = 0
        self._releases: deque[Release] = deque()
        self._settlements: deque[Settlement] = deque()
        self._extensions: deque[tuple[Lease, int, float]] = deque()
        #: Rings when something was posted while the runner slept.
        self._bell: SimpleQueue[None] = SimpleQueue()
        self._asleep = False
        #: Commits for the fetcher.
        self._to_commit: deque[dict[int, Commit]] = deque()
        #: Partitions to pause and to resume, for the fetcher.
        self._valves: deque[tuple[list[int], list[int]]] = deque()
        #: When to look at running handlers next; and when something becomes due by itself, as of the last sweep.
        self._tick_at = 0.0
        self._wake_at: float | None = None
        #: When to look next at how much is held.
        self._gauge_at = 0.0
        #: Records that may be fetched, as the runner saw it last.
        self._room = READ
        #: Records of one read, by their size so far.
        self._most = FIRST_READ
        #: Set when a fetcher that waits for room should look again.
        self._drained = threading.Event()
        #: Set by the fetcher: waiting for room hasn't helped.
        self._waited = False
        self._fetching = True
        self._running = True
        #: One entry for each verdict that came too late.
        self._stale: deque[None] = deque()
        self._runner: threading.Thread | None = None
        self._fetcher: threading.Thread | None = None
        #: Held by whoever is the runner just now: its own thread, or a fetcher that walks inline (rule 4).
        self._core = threading.RLock()
        self.pace = Pace()
        #: What the fetcher walks through now.
        self._walk: Walk | None = None

    # Life

    def start(self, name: str) -> None:
        """Starts the threads; they end by themselves after `finish`, or when one of them fails."""
        self._runner = self._thread(self._run_runner, name)
        self._fetcher = self._thread(self._run_fetcher, name)

    def _thread(self, role: Callable[[], None], name: str) -> threading.Thread:
        thread = threading.Thread(
            target=self._guarded, args=(role,), name=f"{name}-{role.__name__[5:]}", daemon=True
        )
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

    def hush(self) -> None:
        """Begins nothing more; what runs goes on. Waits for that: a crew that is told to end hires nobody after it."""
        with contextlib.suppress(FailedPrecondition):  # the runner has failed, so it begins nothing either
            self.ask(self._hush)

    def _hush(self) -> None:
        self.coordinator.stop()
        self.take_over()

    def finish(self, timeout: float | None = 10.0) -> None:
        """Leaves the group, with a last commit, and ends the threads."""
        self._fetching = False
        self.take_over()
        self._drained.set()
        until = None if timeout is None else time.monotonic() + timeout
        self._join(self._fetcher, until)  # to leave the group it needs the runner
        self._running = False
        self.ring()
        self._join(self._runner, until)
        if not self._runner_alive():
            self.coordinator.end(self._clock())
        self.ended.set()

    def _join(self, thread: threading.Thread | None, until: float | None) -> None:
        if thread is not None and thread is not threading.current_thread():
            thread.join(None if until is None else max(0.1, until - time.monotonic()))

    # What other threads say (Reports)

    def released(self, release: Release) -> None:
        self._releases.append(release)
        if self._asleep:
            self.ring()

    def settled(self, settlement: Settlement) -> None:
        self._settlements.append(settlement)
        self.ring()

    def extended(self, lease: Lease, done: int, seconds: float) -> None:
        self._extensions.append((lease, done, seconds))
        self.ring()

    def stale(self) -> None:
        if self.ended.is_set():  # nobody sweeps any more
            self.coordinator.counts.stale += 1
        else:
            self._stale.append(None)

    def handed_out(self, ack_id: str, message: Message) -> None:
        self._on_handed_out(ack_id, message)

    def ring(self) -> None:
        """Wakes the runner."""
        self._asleep = False
        self._bell.put(None)

    def post(self, call: Callable[[], None]) -> None:
        """`call` will run on the runner."""
        self._posted.append(call)
        self.ring()

    def ask(self, call: Callable[[], Answer], timeout: float | None = None) -> Answer:
        """Runs `call` on the runner and waits for its answer."""
        box: list[Answer] = []
        errors: list[BaseException] = []
        done = threading.Event()

        def run() -> None:
            try:
                box.append(call())
            except BaseException as error:
                errors.append(error)
            done.set()

        self.post(run)
        while not done.wait(0.5 if timeout is None else timeout):
            if timeout is not None or not self._runner_alive():
                raise FailedPrecondition("the stream has ended")
        if errors:
            raise errors[0]
        return box[0]

    def _runner_alive(self) -> bool:
        return self._runner is not None and self._runner.is_alive()

    # The runner

    def _run_runner(self) -> None:
        while self._running or self._posted:
            with self._core:
                self.step(now := self._clock())
                if self._walk is not None and self._walk.stands(now) >= LOOK:
                    self.take_over()
            if self._watch is not None:
                self._watch()
            self._sleep()

    def _sleep(self) -> None:
        self._asleep = True
        if self._posted or self._releases or self._settlements or self._extensions:
            self._asleep = False
            return
        with self._core:
            self._wake_at = self.coordinator.wakeup_at()
        longest = TICK if self._walk is None else LOOK
        wait = longest if self._wake_at is None else min(longest, max(0.0, self._wake_at - self._clock()))
        try:
            self._bell.get(timeout=wait)
            while True:  # several rings are one
                self._bell.get_nowait()
        except Empty:
            pass
        self._asleep = False

    def step(self, now: float) -> None:
        """One sweep: takes what was posted, lets time pass, hands out work and commits."""
        coordinator = self.coordinator
        self._take_posted()
        self._take_reports(now)
        if now >= self._tick_at or (self._wake_at is not None and now >= self._wake_at):
            self._tick_at = now + TICK
            coordinator.tick(now)
        coordinator.deliver(now)
        if self._room < LEAST_READ or now >= self._gauge_at:
            self._gauge_at = now + GAUGE
            self._flow()
        if commits := coordinator.take_commits():
            self._to_commit.append(commits)
            self._drained.set()

    def _take_posted(self) -> None:
        while self._posted:
            self._posted.popleft()()

    def _take_reports(self, now: float) -> None:
        coordinator = self.coordinator
        if self._releases:
            coordinator.released(_drain(self._releases), now)
        if self._settlements:
            coordinator.settled(_drain(self._settlements), now)
        while self._extensions:
            coordinator.extended(*self._extensions.popleft(), now)
        while self._stale:
            self._stale.popleft()
            coordinator.counts.stale += 1

    def _flow(self) -> None:
        held = self.coordinator.held()
        room = self.coordinator.gate.room(held) if held else READ
        if self._room < LEAST_READ <= room:
            self._drained.set()
        self._room = room
        change = self.coordinator.flow(held, waited=self._waited)
        self._waited = False
        if change.pause or change.resume:
            self._valves.append(change)
            self._drained.set()

    # The fetcher

    def _run_fetcher(self) -> None:
        self._reader.subscribe([self._record.topic], self)
        self._run_fetcher_on()

    def _run_fetcher_on(self) -> None:
        mine = True
        try:
            while mine and self._fetching:
                self._make_room()
                mine = self.fetch(READ_WAIT)
                if mine:
                    self._commit_posted()
        finally:
            if mine:
                self._reader.close()

    def _make_room(self) -> None:
        until = self._clock() + HOLD_OFF
        while self._behind() and self._fetching:
            if not self._drained.wait(max(0.0, until - self._clock())):
                self._waited = True
                break
            self._drained.clear()
            self._commit_posted()
        while self._valves:
            pause, resume = self._valves.popleft()
            self._reader.pause([self._place(number) for number in pause])
            self._reader.resume([self._place(number) for number in resume])

    def _commit_posted(self) -> None:
        while self._to_commit:
            self.commit(self.coordinator.current(self._to_commit.popleft()))

    def commit(self, commits: Mapping[int, Commit]) -> None:
        """Sends commits and posts their answers."""
        if not commits:
            return
        positions = {self._place(number): Committed(*commit) for number, commit in commits.items()}
        answers: Mapping[TopicPartition, PubSubError | None]
        try:
            answers = self._reader.commit(positions)
        except PubSubError as error:
            answers = dict.fromkeys(positions, error)
        for place, answer in answers.items():
            if answer is not None:
                log.warning("the commit of %s was refused: %s", place, answer)
        accepted = {place.partition: answer is None for place, answer in answers.items()}
        self.post(lambda: self.coordinator.answered(accepted, self._clock()))

    def _behind(self) -> bool:
        return self._available() < LEAST_READ or self._fetched - self._booked >= POSTED

    def _available(self) -> int:
        return self._room - (self._records_read - self._records_booked)

    def fetch(self, wait: float) -> bool:
        """One read, posted to the runner or walked inline; False if another thread is the fetcher now."""
        inline = 0 if self.coordinator.seat is None else self.pace.limit(self._clock())
        records = self._reader.read(max(1, min(inline or READ, self._most, self._available())), wait)
        if not records:
            return True
        mean = sum(map(len, records)) / len(records) + RECORD_OVERHEAD
        self._most = max(1, int(SHARE * self.coordinator.gate.max_bytes / mean))
        batches = by_partition(records)
        if inline and (walk := self._begin_walk(batches)) is not None:
            return self._walk_through(walk, len(records))
        self._fetched += 1
        self._records_read += len(records)
        count = len(records)
        self.post(lambda: self._book(batches, count))
        return True

    def _book(self, batches: Mapping[int, Sequence[Record]], count: int) -> None:
        self._booked += 1
        self._records_booked += count
        self._gauge_at = 0.0
        self._drained.set()
        self.coordinator.fetched(batches, self._clock())
        if self._hot_keys is not None:
            self._hot_keys.observe(batches.values())

    # Inline walking

    def _begin_walk(self, batches: Mapping[int, Sequence[Record]]) -> Walk | None:
        """Leases for this thread; None if the records have to go through the runner."""
        with self._core:
            self._take_posted()  # rule 1
            seat = self.coordinator.seat
            if seat is None or not self.coordinator.inline(len(batches)):
                self.pace.slow(self._clock())
                return None
            leases = self.coordinator.fetched(batches, self._clock(), inline=True)
            ordered = self._hot_keys is not None
            reserved = self.coordinator.reserve(int(LEFT * sum(len(lease.records) for lease in leases)))
            spare = 1 + reserved // max(1, len(leases))  # its own lease, and a share of what is reserved
            walk = self._walk = Walk(
                [InlineHolder(lease, self, ordered=ordered, spare=spare) for lease in leases]
            )
            seat.lend(True)
        if self._hot_keys is not None:
            self._hot_keys.observe(batches.values())
        return walk

    def _walk_through(self, walk: Walk, count: int) -> bool:
        """Calls the callbacks; False if that took so long that another thread is the fetcher now."""
        seat = cast("Inline", self.coordinator.seat)
        started, left = self._clock(), 0
        while walk.holders:
            told = walk.holders[0].pass_through(seat.callback)
            with self._core:
                if isinstance(told, Passed) and walk.over:
                    pass  # whoever took over has told it
                elif isinstance(told, Passed):
                    left += sum(release.verdict is Verdict.KEPT for release in told.left)
                    left += len(told.lease.records) - told.reached
                    self.coordinator.passed(told, self._clock())
                elif told is not None:
                    self.released(told)
                if walk.over:
                    return False
                walk.holders.popleft()
        with self._core:
            if walk.over:
                return False
            self._walk = None
            self.coordinator.reserve(0)
            seat.lend(False)
            now = self._clock()
            self.pace.walked(count, left, now - started, now)
            self.step(now)
        return True

    def take_over(self) -> None:
        """Ends inline walking that is under way: its callback goes on, its thread isn't the fetcher any more."""
        with self._core:
            walk, self._walk = self._walk, None
            seat = self.coordinator.seat
            if walk is None or seat is None:
                return
            walk.over = True
            now = self._clock()
            for holder in walk.holders:
                if (passed := holder.take_over()) is not None:
                    self.coordinator.passed(passed, now)
            self.coordinator.reserve(0)
            seat.lend(False)
            if walk.holders:  # else it is about to find that it is through
                seat.adopt(walk.holders[0], walk.thread)
            self.pace.slow(now)
            self._fetcher = self._thread(self._run_fetcher_on, walk.thread.name.rpartition("-")[0])
        self.ring()

    def _place(self, number: int) -> TopicPartition:
        return TopicPartition(self._record.topic, number)

    # What the group says (RebalanceListener), on the fetcher

    def assigned(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Outlasts an outage: it says nothing about the subscription. The group goes on without us if it must."""
        denied_until = time.monotonic() + DENIED
        while True:
            try:
                return self._assigned(partitions)
            except (BrokerUnavailable, DeadlineExceeded, NotFound) as error:
                told = isinstance(error, NotFound) and time.monotonic() > denied_until
                if told or not self._fetching or threading.current_thread() is not self._fetcher:
                    raise
                log.warning("subscription %r: %s; trying again", self._record.name, error)
                time.sleep(TRY_AGAIN)

    def _assigned(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        self._record = self._look_up()  # whole or nothing: refuses a layout that has changed
        # Others are younger than the layout that is being drained: they are read when it is the catalog's.
        partitions = [place for place in partitions if place.partition < self._record.partitions]
        committed = self._reader.committed(partitions)
        ranges = {place.partition: self._reader.log_range(place) for place in partitions}

        def begin(number: int, stored: Committed) -> Beginning:
            return beginning(self._record, number, stored, ranges[number])

        stored = {place.partition: committed[place] for place in partitions}
        positions = self.ask(lambda: self.coordinator.assign(stored, begin, self._clock()))
        self._forget_valves(stored)
        return {self._place(number): position for number, position in positions.items()}

    def _forget_valves(self, numbers: Container[int]) -> None:
        """They come flowing: a pause that was decided before would find nobody who ends it."""
        for _ in range(len(self._valves)):
            pause, resume = self._valves.popleft()
            self._valves.append(
                ([n for n in pause if n not in numbers], [n for n in resume if n not in numbers])
            )

    def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        numbers = [place.partition for place in partitions]
        self.commit(self.ask(lambda: self._last_words(numbers, self._clock())))

    def _last_words(self, numbers: Sequence[int], now: float) -> dict[int, Commit]:
        self._take_reports(now)  # what was acked before, and waits behind this question, is part of them
        self.coordinator.progress(now)
        return self.coordinator.revoke(numbers, now)

    def lost(self, partitions: Sequence[TopicPartition]) -> None:
        numbers = [place.partition for place in partitions]
        self.ask(lambda: self.coordinator.lose(numbers, self._clock()))

    def failed(self, partition: TopicPartition | None, error: PubSubError, fatal: bool) -> None:
        if not fatal:
            log.warning("subscription %r: %s", self._record.name, error)
        elif partition is None:
            raise error
        else:
            self._stepped_out(partition, error)

    def _stepped_out(self, place: TopicPartition, error: PubSubError) -> None:
        """The log won't read on at our position; retention may have moved its start past us."""
        owned = self.coordinator.owned.get(place.partition)
        if owned is None:
            return
        position = owned.offsets.position
        log_range = self._reader.log_range(place)
        log.warning(
            "subscription %r: %s (position %d, log %s)", self._record.name, error, position, log_range
        )
        start = beginning(self._record, place.partition, Committed(position, ""), log_range)
        self._reader.seek(place, start.position)


def _drain(line: deque[Release] | deque[Settlement]) -> list:  # type: ignore[type-arg]
    taken = []
    while line:
        taken.append(line.popleft())
    return taken
