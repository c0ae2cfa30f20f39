"""The fetcher beside its walks: takes messages that were handed out meanwhile, and judges callbacks only.

And when the pool has all that it can begin, the fetcher tries for itself whether callbacks are quick.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from typing import cast

import pytest

from kafka_pubsub import Message
from kafka_pubsub.log.clocks import Durations
from kafka_pubsub.subscribe.chooser import Chooser, OldestFirst
from kafka_pubsub.subscribe.partition.events import LeaseOutcome, LeaseReport, Passed
from kafka_pubsub.subscribe.partition.leases import Lease
from kafka_pubsub.subscribe.runner_api import InlineRunner
from kafka_pubsub.subscribe.stream.inline_scheduler import HELP, LOOK, PATIENCE, InlineScheduler
from kafka_pubsub.subscribe.workers.inline_runner import (
    LONGEST,
    LONGEST_DOUBT,
    LONGEST_PENALTY,
    PENALTY,
    SHORTEST,
    Pace,
)
from kafka_pubsub.subscribe.workers.lease_runner import LeaseRunner
from kafka_pubsub.subscribe.workers.observer import UNOBSERVED
from kafka_pubsub.subscribe.workers.thread_workers import Callback, Inline, ThreadWorkers
from tests.support import until
from tests.unit.subscribe.workers.holding import PATIENCE as SECONDS
from tests.unit.subscribe.workers.holding import Reported, lease_of
from tests.unit.subscribe.workers.walking import acked


class Stage:
    """A runner and its pool's session. Deciding takes `deciding` seconds, a callback `calling`; a step has leases."""

    def __init__(self, deciding: float = 0.0, calling: float = 0.0, steps: int = 5, leases: int = 10) -> None:
        self.now = 0.0
        self.core = threading.RLock()
        self.coordinator = self.inbox = self
        self.callback: Callback = self.called
        self.inline_worker: Inline = self
        self.chooser: Chooser = OldestFirst()
        self.aside: deque[LeaseRunner] | None = None
        self.released_: list[LeaseReport] = []
        self.booked = 0
        self.handed_out: list[bool] = []
        #: The records of each read that an inline run may take, and what went to the worker pool.
        self.read = 0
        self.observer = UNOBSERVED
        self.callbacks = Durations()
        self.queued: list[LeaseRunner] = []
        self._deciding, self._calling, self._left, self._leases = deciding, calling, steps, leases
        self.scheduler = InlineScheduler(cast("InlineRunner", self), ordered=True)

    @property
    def laned(self) -> bool:
        return self.chooser.active

    def clock(self) -> float:
        return self.now

    def called(self, message: Message) -> None:
        self.now += self._calling
        acked(message)

    def step(self, now: float, *, hand_out: bool = True, inline: bool = False) -> None:
        self.now += self._deciding
        self.take_reports(now)
        self.handed_out.append(hand_out)
        if hand_out and self._left and self.aside is not None:
            self._left -= 1
            self.aside.extend(LeaseRunner(lease_of(2), Reported()) for _ in range(self._leases))

    def take_reports(self, now: float) -> None:
        self.booked = len(self.released_)

    def released(self, release: LeaseReport) -> None:
        self.released_.append(release)

    def look_alive(self, now: float) -> None: ...

    def take_posted(self) -> None: ...
    def stand_in_ends(self) -> None: ...
    def lend(self, lent: bool) -> None: ...
    def adopt(self, lease_runner: LeaseRunner, thread: threading.Thread) -> None: ...
    def queue(self, lease_runners: Iterable[LeaseRunner]) -> None:
        self.queued += lease_runners

    def take_asks(self, now: float) -> None: ...
    def passed(self, passed: Passed, now: float) -> None: ...
    def hand_in(self, batches: object, count: int) -> None: ...
    def busy(self) -> int:
        return 0

    def spares(self) -> bool:
        return True

    def reserve(self, most: int) -> int:
        return most

    def inline(self, partitions: int) -> bool:
        return True

    def fetched(self, batches: object, now: float, *, inline: bool) -> list[Lease]:
        return [lease_of(0, self.read)] if self.read else []

    def take_inline(self) -> list[Lease]:
        return []

    def put_aside(self, aside: deque[LeaseRunner] | None) -> None:
        self.aside = aside

    def walk(self, *, more: bool = False) -> bool | None:
        return self.scheduler.try_inline({}, 0, more=more)


def quick(pace: Pace) -> Pace:
    while pace.limit(0.0) < LONGEST:
        pace.record_inline(pace.limit(0.0), 0, 0.0, 0.0)
    return pace


def test_what_is_decided_in_between_says_nothing_about_the_callbacks() -> None:
    stage = Stage(deciding=HELP / 10)
    quick(stage.scheduler.pace)
    assert stage.walk()
    assert len(stage.released_) == 50
    assert stage.scheduler.pace.limit(stage.now) == LONGEST


def test_leases_of_slow_callbacks_count_against_the_pace() -> None:
    stage = Stage(calling=0.001)
    quick(stage.scheduler.pace)
    assert stage.walk()
    assert stage.scheduler.pace.limit(stage.now) < LONGEST


@pytest.mark.parametrize("calling", [0.002, 0.005, LOOK])
def test_of_what_was_handed_out_the_fetcher_tries_a_few_records_and_the_pool_has_the_rest(
    calling: float,
) -> None:
    stage = Stage(calling=calling, steps=0)
    waiting = [LeaseRunner(lease_of(128 * at, 128, b"%d" % at), Reported()) for at in range(10)]

    def step(now: float, *, hand_out: bool = True, inline: bool = False) -> None:
        if stage.aside is not None:
            stage.aside.extend(waiting)
            waiting.clear()

    stage.step = step  # type: ignore[method-assign]
    assert stage.walk()
    assert stage.now == pytest.approx(SHORTEST * calling)
    (tried,) = stage.released_
    assert (tried.done, tried.outcome) == (SHORTEST, LeaseOutcome.UNTOUCHED)
    assert len(stage.queued) == 9
    assert not stage.scheduler.pace.limit(stage.now)


def test_a_read_of_which_nothing_can_be_called_says_nothing_about_callbacks_and_a_large_one_follows() -> None:
    stage = Stage(steps=0)
    assert stage.scheduler.try_inline({}, SHORTEST) is True
    assert stage.scheduler.pace.limit(stage.now) == SHORTEST
    assert [stage.scheduler.read_limit(stage.now) for _ in range(2)] == [0, SHORTEST]


@pytest.mark.parametrize("more", [True, False])
def test_while_there_is_more_to_read_only_what_came_of_the_last_run_is_taken(more: bool) -> None:
    stage = Stage()
    assert stage.walk(more=more)
    assert len(stage.released_) == (10 if more else 50)
    assert stage.booked == len(stage.released_), (
        "or their leases would count as out, and leave no room for a walk"
    )


def test_after_a_while_nothing_more_is_begun_before_the_next_read() -> None:
    stage = Stage(deciding=HELP)
    assert stage.walk()
    assert stage.handed_out == [True, False]
    assert stage.scheduler.run is None


def test_a_fetcher_that_was_relieved_is_not_the_fetcher_any_more() -> None:
    stage = Stage()

    def relieve(message: Message) -> None:
        acked(message)
        walk = stage.scheduler.run
        assert walk is not None
        walk.over = True

    stage.callback = relieve
    assert stage.walk(more=True) is False


# When the pool has all that can begin


class Full(Stage):
    """A pool whose `workers` threads are all at work, and leases that wait. In a nap `ends` of them get through."""

    def __init__(self, *, calling: float, workers: int = 8, ends: int = 8, waiting: int = 1000) -> None:
        super().__init__(calling=calling, steps=0)
        self.at_work, self.workers, self._ends = workers, workers, ends
        self.waiting = deque(LeaseRunner(lease_of(at), Reported()) for at in range(waiting))
        self.naps = 0

    def inline(self, partitions: int) -> bool:
        return False

    def busy(self) -> int:
        return self.at_work

    def spares(self) -> bool:
        return self.at_work < self.workers

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.naps += 1
        self.at_work = max(0, self.at_work - self._ends)

    def put_aside(self, aside: deque[LeaseRunner] | None) -> None:
        super().put_aside(aside)
        if aside is not None:
            aside.extend(self.waiting)
            self.waiting.clear()

    def queue(self, lease_runners: Iterable[LeaseRunner]) -> None:
        self.waiting.extend(lease_runners)
        self.at_work = self.workers

    def trials(self, count: int) -> list[float]:
        """The time that each takes, and the distance to the next."""
        distances = []
        for _ in range(count):
            assert self.walk() is True
            began = self.now
            while not self.scheduler.pace.limit(self.now):
                self.now += PENALTY / 2
            distances.append(self.now - began)
        return distances


def test_a_full_worker_pool_whose_threads_only_wait_for_the_interpreter_is_relieved() -> None:
    """Its rate says nothing: in the time in which the pool has finished nothing, the fetcher takes everything."""
    go, reports = threading.Event(), Reported()
    stage = Stage(calling=1e-6, steps=0)
    by: list[str] = []

    def called(message: Message) -> None:
        assert go.wait(SECONDS)
        by.append(threading.current_thread().name)
        message.ack()

    worker_pool = stage.inline_worker = ThreadWorkers(called, 8, reports, "workers", stage.clock)
    stage.inline = lambda partitions: False  # type: ignore[method-assign]
    worker_pool.take([lease_of(at, 1, b"%d" % at) for at in range(500)])
    while worker_pool._workers.hired < 8:
        stage.now += 1.0
        worker_pool.wants(1000)
    until(lambda: len(worker_pool.running()) == 8)

    def sleep(seconds: float) -> None:
        stage.now += seconds
        go.set()
        until(lambda: not worker_pool.busy())

    stage.sleep = sleep  # type: ignore[attr-defined]
    assert stage.walk() is True
    assert len(reports.releases) == 8, "what was begun goes on where it was begun"
    assert len(stage.released_) == 492
    assert by[8:] == [threading.current_thread().name] * 492
    assert stage.scheduler.pace.limit(stage.now) > SHORTEST
    assert worker_pool.close(SECONDS)


def test_what_a_take_over_leaves_waits_for_the_old_callback_where_there_is_one_worker() -> None:
    go, begun, stage = threading.Event(), threading.Event(), Stage()
    leases = [lease_of(at, 1, b"%d" % at) for at in range(3)]
    by: list[threading.Thread] = []

    def called(message: Message) -> None:
        by.append(threading.current_thread())
        begun.set()
        assert go.wait(SECONDS)
        message.ack()

    worker_pool = stage.inline_worker = ThreadWorkers(called, 1, Reported(), "workers", stage.clock)

    def step(now: float, *, hand_out: bool = True, inline: bool = False) -> None:
        worker_pool.take(leases)
        leases.clear()

    stage.step = step  # type: ignore[method-assign]
    fetcher = threading.Thread(target=stage.walk)
    fetcher.start()
    assert begun.wait(SECONDS)
    with stage.core:
        assert stage.scheduler.take_over()
    assert worker_pool._workers._made == 0, "the old callback is the one that may run"
    go.set()
    fetcher.join(SECONDS)

    def pass_on() -> bool:
        stage.now += 1.0
        worker_pool.wants(10)
        return len(by) == 3

    until(pass_on)
    assert by.count(fetcher) == 1
    assert worker_pool.close(SECONDS)


def test_a_trial_that_is_quick_takes_more_and_more_and_all_in_the_end() -> None:
    stage = Full(calling=5e-6)
    for _ in range(5):
        stage.scheduler.pace.slow(0.0)
    assert not stage.scheduler.pace.limit(stage.now)
    stage.now = 20.0
    assert stage.walk() is True
    assert (len(stage.released_), len(stage.waiting)) == (1000, 0)
    assert stage.scheduler.pace.limit(stage.now) == LONGEST


@pytest.mark.parametrize("calling", [0.002, 0.005, LOOK])
def test_a_trial_of_slow_callbacks_gives_the_worker_pool_its_leases_back_after_two(calling: float) -> None:
    stage = Full(calling=calling)
    before = list(stage.waiting)
    assert stage.walk() is True
    assert stage.now <= PATIENCE + 2 * calling
    assert list(stage.waiting) == before[2:], "in their order"
    assert not stage.scheduler.pace.limit(stage.now)


def test_trials_of_slow_callbacks_become_rare() -> None:
    distances = Full(calling=0.005).trials(9)
    assert distances == pytest.approx([min(PENALTY * 2**at, LONGEST_PENALTY) for at in range(9)])


def test_where_threads_take_longer_than_patience_nothing_is_called() -> None:
    """A callback that takes a second, for instance: about one more gets through meanwhile."""
    stage = Full(calling=1.0, workers=64, ends=1)
    assert stage.walk() is True
    assert stage.now <= 1.1 * PATIENCE
    assert (len(stage.released_), len(stage.waiting)) == (0, 1000)
    assert not stage.scheduler.pace.limit(stage.now)


def test_a_worker_pool_that_does_not_get_through_is_no_proof_so_trials_go_on() -> None:
    """A machine that is busy for half a minute does that, and the stream falls behind until the fetcher notices."""
    stage = Full(calling=5e-6, ends=0)
    assert max(stage.trials(9)) == pytest.approx(LONGEST_DOUBT)
    stage._ends = 8
    assert stage.walk() is True
    assert len(stage.released_) == 1000


def test_one_thread_that_is_stuck_does_not_keep_the_fetcher_from_the_others_work() -> None:
    stage = Full(calling=5e-6, workers=2, ends=0)
    stage.at_work = 2

    def sleep(seconds: float) -> None:
        stage.now += seconds
        stage.at_work = 1

    stage.sleep = sleep  # type: ignore[method-assign]
    assert stage.walk() is True
    assert len(stage.released_) == 1000
    assert stage.now < 2 * PATIENCE


def test_no_callback_runs_beside_former_fetchers_that_take_all_places() -> None:
    stage = Full(calling=5e-6)
    stage.spares = lambda: False  # type: ignore[method-assign]
    assert stage.walk() is True
    assert (len(stage.released_), len(stage.waiting)) == (0, 1000)


def test_what_can_begin_when_the_threads_are_through_is_tried() -> None:
    """Each key's turn comes when the lease before is over."""
    stage = Full(calling=5e-6, waiting=0)
    stage._left = 1
    assert stage.walk() is True
    assert len(stage.released_) == 10
    assert stage.scheduler.pace.limit(stage.now) > SHORTEST


@pytest.mark.parametrize(("beside", "longest"), [(0, LONGEST_PENALTY), (1, LONGEST_DOUBT)])
def test_records_that_took_long_prove_something_if_no_thread_ran_beside(beside: int, longest: float) -> None:
    stage = Stage()
    stage.busy = lambda: beside  # type: ignore[method-assign]
    stage.read = SHORTEST

    def clock() -> float:
        stage.now += 0.005
        return stage.now

    stage.clock = clock  # type: ignore[method-assign]
    for _ in range(9):
        stage.now += 1000.0
        assert stage.scheduler.try_inline({}, SHORTEST) is True
    assert not stage.scheduler.pace.limit(stage.now + longest - 0.1)
    assert stage.scheduler.pace.limit(stage.now + longest)


def test_what_users_keep_leaves_nothing_to_try() -> None:
    stage = Full(calling=5e-6, waiting=0)
    stage.at_work = 0
    assert stage.walk() is True
    assert (stage.now, len(stage.released_)) == (0.0, 0)
    assert not stage.scheduler.pace.limit(stage.now)


def test_messages_that_are_kept_count_as_called() -> None:
    """Else a trial would have no end before all that waits was called."""
    stage = Full(calling=0.005)

    def kept(message: Message) -> None:
        stage.now += 0.005

    stage.callback = kept
    assert stage.walk() is True
    assert [release.outcome for release in stage.released_] == [LeaseOutcome.KEPT] * 2
    assert len(stage.waiting) == 998


def test_a_take_over_ends_a_trial_wherever_it_stands() -> None:
    waits, calls = Full(calling=5e-6), Full(calling=5e-6)

    def sleep(seconds: float) -> None:
        assert waits.scheduler.take_over() is not None

    def called(message: Message) -> None:
        acked(message)
        assert calls.scheduler.take_over() is not None

    waits.sleep = sleep  # type: ignore[method-assign]
    calls.callback = called
    for stage, released in ((waits, 0), (calls, 1)):
        assert stage.walk() is False
        assert (len(stage.released_), len(stage.waiting)) == (released, 1000 - released)
        assert not stage.scheduler.pace.limit(PENALTY - 0.01), "one trial, one penalty"
        assert stage.scheduler.pace.limit(PENALTY + 0.01)


class Ordered(OldestFirst):
    """Lanes with ordering keys, of which messages wait for busy threads."""

    choosing = ordered = True


class Busy(Stage):
    """A fetcher whose naps are all that takes time."""

    def __init__(self) -> None:
        super().__init__()
        self.chooser = Ordered()

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_behind_slow_callbacks_of_ordered_lanes_reads_become_whole() -> None:
    stage = Busy()
    quick(stage.scheduler.pace)
    reads = 0
    while stage.scheduler.limit(stage.now):  # small reads, each after a wait for the threads
        assert stage.scheduler.let_lanes_go()
        reads += 1
        assert reads < 20, "an urgent message behind a backlog would wait for thousands of them"
    waited_until = stage.now
    assert stage.scheduler.let_lanes_go()
    assert stage.now == waited_until, "what is read at once waits for no thread"
