"""Inline runs: the fetcher calls quick callbacks itself, and is relieved when one takes long (see `inline_runner`).

Rules
1. A thread that decides here holds the runner's lock `core`; no thread holds it while a callback runs.
2. An inline run ends once: by its own thread, or by a take-over, which reports what that thread can't report any more.
3. The pace of a worker pool that has all it can begin proves nothing: threads that wait for the interpreter look like
   threads that wait for I/O, and such a worker pool falls behind for ever, though callbacks take microseconds. So its
   threads get no leases for a moment, and the fetcher takes waiting leases: a few, then more and more, or it gives
   them back. That costs slow callbacks `PATIENCE` and the time of two.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence

from kafka_pubsub.log.records import Record
from kafka_pubsub.partition_id import PartitionId
from kafka_pubsub.subscribe.partition.events import Passed
from kafka_pubsub.subscribe.partition.leases import Lease
from kafka_pubsub.subscribe.runner_api import InlineRunner
from kafka_pubsub.subscribe.workers.inline_runner import LEFT, InlineLeaseRunner, InlineRun, Pace
from kafka_pubsub.subscribe.workers.thread_workers import Inline

__all__ = ["LOOK", "InlineScheduler"]

#: Seconds after which a callback that the fetcher called counts as slow.
LOOK = 0.05
#: Seconds for which leases wait for the fetcher while it reads, before the worker pool's threads get them.
SOON = 0.02
#: Seconds for which the fetcher takes leases that were handed out, before it reads again.
HELP = 0.02
#: Seconds for which it takes messages of lanes, before it looks at what came.
BEGIN = 0.005
#: Seconds for which the fetcher waits for the worker pool's threads to end their leases.
PATIENCE = 0.02


class InlineScheduler:
    """Decides when the fetcher of one runner calls callbacks inline."""

    def __init__(self, runner: InlineRunner, *, ordered: bool) -> None:
        self.pace = Pace()
        #: The inline run that is under way.
        self.run: InlineRun | None = None
        self._runner = runner
        self._ordered = ordered
        self._ended_at = float("-inf")
        #: Whether the log had more to read, and whether the last run took anything.
        self._more = self._took = False
        #: Whether each record of the last small read waits behind others of its key.
        self._in_vain = False

    def soon(self, now: float) -> bool:
        """Returns whether the fetcher will take new leases in a moment, which costs less than waking threads."""
        # A choice of lanes waits for an answer, and a fetcher that has nothing to read comes back too late.
        chooser = self._runner.coordinator.chooser
        waits = not chooser.active or (self._more and not chooser.ordered)
        return waits and now - self._ended_at < SOON and self.pace.limit(now) > 0

    def let_lanes_go(self) -> bool:
        """Takes what waits in lanes before more is read; False: another thread is the fetcher now.

        While the pool's threads are busy it gives them nothing more, and waits until they are idle (rule 3). Where keys
        set an order, the pool's threads take what waits, and this waits for them.
        """
        runner = self._runner
        until, chooser = runner.clock() + PATIENCE, runner.coordinator.chooser
        while chooser.choosing and self.limit(now := runner.clock()):
            if chooser.ordered:
                if now >= until:
                    self.pace.hindered(now)  # else small reads would take seconds to get past a backlog
                    break
                runner.sleep(PATIENCE / 20)
                continue
            mine = self.try_inline({}, 0, more=True)
            if mine is False:
                return False
            if now >= until:
                if mine is None:
                    self.pace.hindered(now)
                break
            if mine is None:
                self._more, self._ended_at = True, now
            if not self._took:
                runner.sleep(PATIENCE / 20)
        return True

    def limit(self, now: float) -> int:
        """Returns how many records to read for an inline run; 0: no inline run."""
        return 0 if self._runner.coordinator.inline_worker is None else self.pace.limit(now)

    def read_limit(self, now: float) -> int:
        """Returns the same for the next read; 0 too after one in vain, since backlogs of keys need large reads."""
        in_vain, self._in_vain = self._in_vain, False
        return 0 if in_vain else self.limit(now)

    def try_inline(
        self, batches: Mapping[PartitionId, Sequence[Record]], count: int, *, more: bool = False
    ) -> bool | None:
        """Calls the callbacks of a read; False: another thread is the fetcher now, None: the runner must take the read.

        `more`: the log has more to read.
        """
        runner = self._runner
        with runner.core:
            runner.look_alive(runner.clock())
            runner.take_posted()  # in the order of the reads
            inline_worker = runner.coordinator.inline_worker
            if inline_worker is None:
                return None
            laned = runner.coordinator.laned
            # To relieve a pool that is busy would hold up urgent messages, which its threads take in their turn.
            inline = runner.coordinator.inline(len(batches)) and not (laned and inline_worker.busy())
            self._more = more and inline
            if laned and not inline:
                return None
            run = self.run = self._begin(batches) if inline else InlineRun(())
            inline_worker.lend(True)
        if inline:
            self._in_vain = not laned and count > 0 and not run.records
            return self._go(run, inline_worker, more=more)
        runner.hand_in(batches, count)
        return self._relieve(run, inline_worker)

    def book(self, take: Callable[[], None]) -> None:
        """Records a read at once, on the fetcher, after the earlier ones that were posted."""
        runner = self._runner
        with runner.core:
            runner.look_alive(runner.clock())
            runner.take_posted()
            take()

    def _relieve(self, run: InlineRun, inline_worker: Inline) -> bool:
        """Tries leases that the busy worker pool hasn't begun, and takes them all if that is quick."""
        runner = self._runner
        with runner.core:
            inline_worker.put_aside(run.aside)
            inline_worker.put_aside(None)
        idle = self._runs_dry(run, inline_worker) and self._refill(run, inline_worker)
        if idle and self._try(run, inline_worker):
            return self._help(run, inline_worker) and self._end(run, inline_worker)
        with runner.core:
            if not run.over and not idle:
                self.pace.hindered(runner.clock())
        return self._end(run, inline_worker)

    def _runs_dry(self, run: InlineRun, inline_worker: Inline) -> bool:
        """Waits until most of the pool's threads have ended their leases; returns whether one more callback may run."""
        runner, at_work = self._runner, inline_worker.busy()
        until = runner.clock() + PATIENCE
        while inline_worker.busy() and not run.over and runner.clock() < until:
            runner.sleep(PATIENCE / 20)
        return 2 * inline_worker.busy() <= at_work and inline_worker.spares()

    def _refill(self, run: InlineRun, inline_worker: Inline) -> bool:
        """Puts aside leases that can begin now that the pool's threads are idle; returns whether there are any."""
        runner = self._runner
        with runner.core:
            if not run.over and not run.aside:
                inline_worker.put_aside(run.aside)
                runner.step(runner.clock())
                inline_worker.put_aside(None)
            return bool(run.aside)

    def _try(self, run: InlineRun, inline_worker: Inline) -> bool:
        """Takes more and more of the leases put aside, as long as that is quick; returns whether it was to the end."""
        runner = self._runner
        now = runner.clock()
        while run.aside and (limit := self.pace.limit(now)):
            alone, started = not inline_worker.busy(), now
            records = self._take_aside(run, inline_worker, limit)
            now = runner.clock()
            self._count_time(run, now - started, records)
            with runner.core:
                if run.over:
                    return False
                now = runner.clock()
                self.pace.record_inline(records, 0, now - started, now, alone=alone)
            self._took = True
        return not run.aside

    def _begin(self, batches: Mapping[PartitionId, Sequence[Record]]) -> InlineRun:
        runner = self._runner
        now = runner.clock()
        # Of lanes more is read than is taken at once, if a choice waits for more.
        most = self.pace.limit(now) if runner.coordinator.laned else sys.maxsize
        leases = runner.coordinator.fetched(batches, now, inline=most)
        reserved = runner.coordinator.reserve(int(LEFT * sum(len(lease.records) for lease in leases)))
        spare = 1 + reserved // max(1, len(leases))  # its own lease, and a share of what is reserved
        return InlineRun([self._lease_runner(lease, spare) for lease in leases])

    def _lease_runner(self, lease: Lease, spare: int = 1) -> InlineLeaseRunner:
        return InlineLeaseRunner(lease, self._runner.inbox, ordered=self._ordered, spare=spare)

    def _go(self, run: InlineRun, inline_worker: Inline, *, more: bool) -> bool:
        runner = self._runner
        alone, started = not inline_worker.busy(), runner.clock()
        left = self._pass_all(run, inline_worker)
        now = runner.clock()
        self._count_time(run, now - started, run.records)
        with runner.core:
            if run.over:
                return False
            now = runner.clock()
            if run.records:
                self.pace.record_inline(run.records, left, now - started, now, alone=alone)
            runner.coordinator.reserve(0)
        return self._help(run, inline_worker, more=more) and self._end(run, inline_worker)

    def _pass_all(self, run: InlineRun, inline_worker: Inline) -> int:
        """Takes the inline leases; returns how many records were kept, or not begun because others were."""
        runner, left = self._runner, 0
        while run.lease_runners and not run.over:
            result = run.lease_runners[0].pass_through(inline_worker.callback)
            with runner.core:
                if isinstance(result, Passed) and not run.over:  # else the take-over has reported it
                    left += len(result.left) + len(result.lease.records) - result.reached
                    self._tell(result)
                elif result is not None and not isinstance(result, Passed):
                    runner.inbox.released(result)
                if not run.over:
                    run.lease_runners.popleft()
        return left

    def _help(self, run: InlineRun, inline_worker: Inline, *, more: bool = False) -> bool:
        """Takes due messages, and leases that were handed out meanwhile: cheaper than waking a thread for each.

        `more`: the log has more to read, so their outcomes are decided after the next inline run, with its own.
        """
        runner = self._runner
        started = runner.clock()
        self._took = False
        # What the pool has of lanes stays there: if callbacks take long, urgent messages would wait for all of it.
        laned = runner.coordinator.laned
        records, left, seconds = 0, 0, 0.0
        while True:
            with runner.core:
                if run.over:
                    return False
                now = runner.clock()
                inline_worker.put_aside(run.aside if self.pace.limit(now) and not laned else None)
                runner.step(now, hand_out=now - started < HELP, inline=True)
                inline_worker.put_aside(None)
                run.lease_runners += [self._lease_runner(lease) for lease in runner.coordinator.take_inline()]
            if not run.aside and not run.lease_runners:
                break
            now = runner.clock()  # the time of decisions in between isn't the callbacks'
            count = sum(len(lease_runner.lease.records) for lease_runner in run.lease_runners)
            left += self._pass_all(run, inline_worker)
            took = runner.clock() - now
            self._count_time(run, took, count)
            records, seconds = records + count, seconds + took
            if not self._try(run, inline_worker):
                break
            if runner.clock() - started >= BEGIN if laned else more:  # a lane may have more for ever
                with runner.core:
                    if not run.over:
                        runner.inbox.take_reports(runner.clock())
                break
        if records:
            self._took = True
            self.pace.record_inline(records, left, seconds, runner.clock())
        return not run.over

    def _count_time(self, run: InlineRun, seconds: float, records: int) -> None:
        """Counts how long callbacks took; of a run that was taken over only the one is known that took long."""
        inbox = self._runner.inbox
        inbox.callbacks.add(seconds, 1 if run.over else records)

    def _take_aside(self, run: InlineRun, inline_worker: Inline, most: int) -> int:
        """Runs up to `most` records of ordinary leases; returns how many there were."""
        released, records = self._runner.inbox.released, 0
        while (lease_runner := run.next_aside(wanted=records < most)) is not None:
            released(lease_runner.run(inline_worker.callback, most - records))
            records += max(1, lease_runner.done)  # one was begun, with any outcome
        return records

    def _end(self, run: InlineRun, inline_worker: Inline) -> bool:
        runner = self._runner
        with runner.core:
            if run.over:
                return False
            self.run = None
            self._ended_at = runner.clock()
            inline_worker.lend(False)
            if rest := run.leave_aside():
                inline_worker.queue(rest)
            runner.stand_in_ends()
        return True

    def _tell(self, passed: Passed) -> None:
        runner = self._runner
        runner.inbox.take_asks(now := runner.clock())  # the asks of the callbacks that it reports
        runner.coordinator.passed(passed, now)

    def stands(self, now: float) -> bool:
        """Returns whether the inline run, or its present callback, takes long."""
        return self.run is not None and self.run.stands(now) >= LOOK

    def take_over(self) -> InlineRun | None:
        """Ends the inline run that is under way, if any: its thread isn't the fetcher any more."""
        runner = self._runner
        run, self.run = self.run, None
        inline_worker = runner.coordinator.inline_worker
        if run is None or inline_worker is None:
            return None
        run.over = True
        now = runner.clock()
        for lease_runner in run.lease_runners:
            if (passed := lease_runner.take_over()) is not None:
                self._tell(passed)
        runner.coordinator.reserve(0)
        inline_worker.lend(False)
        inline_worker.put_aside(None)
        rest = run.leave_aside()
        # Its callback goes on, as a worker: this decides how many threads the rest may have.
        if (current := run.current) is not None:  # else it is about to end by itself
            inline_worker.adopt(current, run.thread)
        inline_worker.queue(rest)
        self.pace.slow(now, proved=current is not None)
        return run
