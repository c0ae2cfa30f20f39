"""Simulated worlds whose processes keep histories: `python -m tests.simulation.recorded_world FIRST COUNT`.

Theory. The simulation judges its view of the world, the checker the processes' histories. Both must agree on every
seed: that the checker finds nothing shows that the client tells the truth, in schedules that no broker would give.

Rules
1. The world is the simulation's; here it is only listened to. Events without a place in a history (retention,
   compaction, foreign transactions, an ack that crosses its handler's end by hand) doesn't happen.
2. Events are a nanosecond apart, so that the order of the schedule is that of the clock.
3. A single disagreement is the schedule's: a process that waits inside a request for longer than its session, and dies
   there (a single seed in some hundreds: `ownership`). Real ones go on sending heartbeats meanwhile.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from kafka_pubsub.history.history import HistoryFile, fingerprint
from kafka_pubsub.history.recorder import Recorder
from kafka_pubsub.model import Header, Message, StoredRecord
from kafka_pubsub.subscribe.partition.leases import Lease
from kafka_pubsub.subscribe.partition.settings import Exhausted
from tests.checker.judgement import Judgement, judge
from tests.checker.settings import Settings
from tests.simulation.disasters import DISASTERS
from tests.simulation.plan import Plan, PlanVariant, scaled
from tests.simulation.process import SESSION, Process
from tests.simulation.trouble import GROUP, TOPIC
from tests.simulation.worker_pool import Hand
from tests.simulation.world import SimulatedWorld

__all__ = ["PATIENT", "RecordedWorld", "judged"]

#: Time is the schedule's: an evicted process may learn of it as late as it likes.
PATIENT = Settings(grace=1e6, max_lag=1e6, late_loss=1e6)
#: Events for which a history has no words.
UNRECORDED = (
    "hole",
    "transaction",
    "retention",
    "compaction",
    "rubbish",
    "stranger",
    "set_clock",
    *DISASTERS,
)


def told(plan: Plan) -> Plan:
    """The same plan without events that can't be told."""
    actions = {name: weight for name, weight in plan.actions.items() if name not in UNRECORDED}
    conduct = {name: weight for name, weight in plan.conduct.items() if name != "ack_crosses"}
    # Late commits are left to the ledger: no history tells of an assignment that has outlasted its session.
    return replace(plan, actions=actions, conduct=conduct, retry=replace(plan.retry, late_commits=0.0))


class RecordedProcess(Process):
    """A process whose death is known at once; the dead tell nothing."""

    died: Callable[[], None]

    @property
    def dead(self) -> bool:
        """Whether it has ended, one way or the other."""
        return bool(self.__dict__["dead"])

    @dead.setter
    def dead(self, dead: bool) -> None:
        if dead and not self.dead:
            self.died()
        self.__dict__["dead"] = dead


class RecordedWorld(SimulatedWorld):
    """A world that is written down in a directory."""

    def __init__(
        self, seed: int, directory: Path, *, retry: bool, variant: PlanVariant | None = None
    ) -> None:
        self._directory = directory
        self._events = 0
        self._pids: dict[Process, int] = {}
        self._troubles: dict[str, float] = {}
        super().__init__(
            seed, None, retry=retry, variant=lambda plan: told(variant(plan) if variant else plan)
        )

    def _create(self) -> None:
        self._driver = self._file("driver", 1)
        self._publisher = self._file("publisher", 2)
        append, self._sent = self.cluster.append, 0

        def recorded_append(
            topic: str,
            number: int,
            value: bytes | None,
            key: bytes | None = None,
            headers: Sequence[Header] | None = None,
            **more: str | None,
        ) -> StoredRecord:
            record = append(topic, number, value, key, headers, **more)  # type: ignore[arg-type]
            if topic == TOPIC:
                self._sent += 1
                attributes = {name: (text or b"").decode() for name, text in headers or ()}
                sha = fingerprint(key, value or b"", attributes)
                self._publisher.send(self._sent, None if key is None else key.decode(), sha)
                self._publisher.stored(self._sent, number, record.offset() or 0)
            return record

        evict = self.cluster.evict

        def recorded_evict(group: str, member: str | None = None) -> None:
            evict(group, *(() if member is None else (member,)))
            pids = [pid for process, pid in self._pids.items() if member in (None, process.name)]
            self._trouble(f"{member} is removed at {self._events}", self.now() + SESSION, pids)

        self.cluster.evict = recorded_evict  # type: ignore[method-assign]
        self.cluster.append = recorded_append  # type: ignore[method-assign,assignment]
        super()._create()
        self._driver.subscribe(dict(enumerate(self.starts)))

    def _file(self, role: str, pid: int) -> HistoryFile:
        return HistoryFile(
            self._directory / f"{role}-{pid}.jsonl",
            role=role,
            topic=TOPIC,
            subscription=GROUP if role == "subscriber" else None,
            ordered=self.plan.rules.ordered,
            pid=pid,
            host="simulated",
            monotonic_ns=self._tick,
            time_ns=self._tick,
            segment=1 << 16,
        )

    def _tick(self) -> int:
        self._events += 1
        return int(self.clock.now() * 1e9) + self._events

    def join(self) -> None:
        before = set(self._pids)
        super().join()
        for process in self.processes:
            if process not in before:
                pid = self._pids[process] = 10 + len(self._pids)
                file = self._file("subscriber", pid)
                process.__class__ = RecordedProcess
                vars(process)["died"] = partial(self._died, process, file)
                _listen(process, file)

    def _died(self, process: Process, file: HistoryFile) -> None:
        if not process.stream_runner.inbox.ended.is_set():
            self._driver.crash(self._pids[process])
        file.close = lambda: None  # type: ignore[method-assign]
        file._over = True

    def stall(self) -> None:
        super().stall()
        for process in self.processes:
            name = f"stall of {process.name} until {process.stalled_until}"
            if process.stalled_until > self.now() and name not in self._troubles:
                self._trouble(name, process.stalled_until, [self._pids[process]])

    def _trouble(self, name: str, until: float, pids: Sequence[int]) -> None:
        """These may not hear from the log until then."""
        self._troubles[name] = until
        self._driver.fault(name, pids)

    def _look(self) -> None:
        super()._look()
        over = [name for name, until in self._troubles.items() if self.calm or self.now() >= until]
        for name in over:
            self._driver.mend(name)
            del self._troubles[name]

    def close(self) -> None:
        """Everything has been told."""
        self._look()
        self._publisher.close()
        self._driver.close()


def _listen(process: Process, file: HistoryFile) -> None:
    """From now on the process tells of its steps."""
    stream_runner, worker_pool, finish = process.stream_runner, process.worker_pool, process.finish
    evidence = Recorder(file, lambda: stream_runner.rebalances.layout)
    stream_runner.inbox.observer = stream_runner.rebalances.observer = process.coordinator.observer = evidence
    process.retry_side.on_answer = evidence.move_answered
    begins, leave, call = process.begins, worker_pool._leave, worker_pool.callback

    def recorded_begins(lease: Lease, message: Message, together: Sequence[int]) -> None:
        if not worker_pool.spread:
            evidence.begins(message)
        begins(lease, message, together)

    def recorded_leave(hand: Hand) -> None:
        evidence.ends(hand.messages[0])
        leave(hand)

    def recorded_call(message: Message) -> None:
        try:
            call(message)
        finally:
            evidence.ends(message)

    def recorded_finish() -> None:
        finish()
        stream_runner.inbox.ended.set()
        evidence.close()

    _replace(process, "begins", recorded_begins)
    _replace(process, "finish", recorded_finish)
    _replace(worker_pool, "_leave", recorded_leave)
    worker_pool.callback = recorded_call


def _replace(owner: object, name: str, method: Callable[..., None]) -> None:
    setattr(owner, name, method)


def judged(seed: int, directory: Path, *, retry: bool, variant: PlanVariant | None = None) -> Judgement:
    """A single seed's world, lived to its end, and what its histories prove."""
    world = RecordedWorld(seed, directory, retry=retry, variant=variant)
    with scaled(world.plan):
        world.live()
        world.settle()
    world.close()
    # Parked messages stay until somebody releases them, and the later messages of their key behind them.
    parks = retry and world.plan.rules.policy.on_exhausted is Exhausted.PARK
    return judge(directory, replace(PATIENT, drained=not parks))


def main() -> int:
    """The command; prints the seeds at which the checker disagrees."""
    import logging

    logging.disable(logging.CRITICAL)
    first, count = (int(each) for each in sys.argv[1:3])
    failed = deliveries = 0
    for seed in range(first, first + count):
        for retry in (False, True):
            with tempfile.TemporaryDirectory() as directory:
                judgement = judged(seed, Path(directory), retry=retry)
            deliveries += judgement.counts["deliveries"]
            if not judgement.ok:
                failed += 1
                print(f"seed {seed} retry={retry}: {dict(judgement.reports[GROUP].counts)}")
                if "--show" in sys.argv:
                    print(judgement.text)
    print(f"{count} seeds, {deliveries} deliveries, {failed} failed")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
