"""The subscription coordinator: owns the core's partitions, feeds them what happens, and does what they say.

Theory. One thread (the runner's) calls everything here, so there is no lock. Partitions come and go with the
group's rebalances; effects become calls to the crew and commits to hand to the reader. The coordinator knows no
thread and no clock: the simulation drives it step by step.

Rules
1. A revoked partition is *resting*: its books are kept, nothing begins. If it returns and the log holds exactly
   what we wrote last, it goes on where it was; otherwise its leases are over and it starts anew under a new epoch.
2. A key whose old handler still runs here is held back in the new ownership until that handler has ended.
3. `max_messages` counts messages that were started and not finished, over all partitions: a lease counts one,
   because of its records only one is with a handler.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from kafka_pubsub.client.crews import Crew, Inline
from kafka_pubsub.client.holders import Holder
from kafka_pubsub.client.ownership import Beginning
from kafka_pubsub.config import FlowControl
from kafka_pubsub.core.effects import (
    Announce,
    Commit,
    CommitBoth,
    Deliver,
    Effect,
    ReadBodies,
    Relocate,
    Restart,
    Stale,
    Stop,
    Trim,
    Withdraw,
)
from kafka_pubsub.core.events import (
    CommitAnswered,
    Demand,
    Ended,
    Event,
    Extended,
    Fetched,
    Lost,
    Passed,
    Progress,
    Progressed,
    Record,
    Release,
    Released,
    Returned,
    Revoked,
    Settled,
    Settlement,
    Tick,
)
from kafka_pubsub.core.flow import BufferGate, Change, Held
from kafka_pubsub.core.leases import Lease, LeaseState
from kafka_pubsub.core.partition import Partition
from kafka_pubsub.core.rules import Rules, Start
from kafka_pubsub.errors import InvariantViolated
from kafka_pubsub.model import Committed

__all__ = ["Coordinator", "Counts"]


@dataclass
class Counts:
    """What a stream has done so far."""

    received: int = 0
    redelivered: int = 0
    stale: int = 0
    commits: int = 0


class Coordinator:
    """The partitions of one stream."""

    def __init__(
        self, rules: Rules, flow: FlowControl, crew: Crew, process: int, jitter: Callable[[], float]
    ) -> None:
        self._rules = rules
        self._flow = flow
        self._crew = crew
        self._process = process
        self._jitter = jitter
        self._epochs = 0
        #: Partitions that are ours. Empty: nothing was assigned.
        self.owned: dict[int, Partition] = {}
        #: Revoked ones that may return.
        self.resting: dict[int, Partition] = {}
        #: Leases that are over while their handlers still run; each holds its key back.
        self._lingering: set[Lease] = set()
        #: Commits to send, by partition; the newest of each.
        self.commits: dict[int, Commit] = {}
        self.gate: BufferGate[int] = BufferGate(flow.max_bytes)
        self.counts = Counts()
        #: What partitions that are gone had finished and committed.
        self._past_finished = 0
        self._past_positions: dict[int, int] = {}
        self._leased = 0
        #: Leases that the fetcher may come to need for messages that its callbacks keep; nobody else gets them.
        self._reserved = 0
        self._turn = 0
        self.closing = False

    # Ownership

    def returns(self, number: int, committed: Committed) -> int | None:
        """The in-memory position of a resting partition to which nobody else has written; else None."""
        partition = self.resting.get(number)
        if partition is None or partition.commits.stored != Commit(committed.offset or 0, committed.metadata):
            return None
        return partition.offsets.position

    def assign(
        self,
        committed: Mapping[int, Committed],
        begin: Callable[[int, Committed], Beginning],
        now: float,
    ) -> dict[int, int]:
        """Takes on partitions; returns where to read each. What rests and didn't return is over."""
        positions: dict[int, int] = {}
        self.gate.forget(committed)
        for number, stored in committed.items():
            position = self.returns(number, stored)
            if position is not None:
                self.owned[number] = self.resting.pop(number)
                self._do(number, Returned(), now)
            else:
                self._forget(number, now)
                position = self._start(number, stored, begin(number, stored))
            positions[number] = position
        for number in list(self.resting):
            self._forget(number, now)
        self._recount()
        return positions

    def _start(self, number: int, stored: Committed, start: Beginning) -> int:
        self._epochs += 1
        held_back = [
            lease.key for lease in self._lingering if lease.partition == number and lease.key is not None
        ]
        partition = Partition(
            Start(
                number,
                self._epochs,
                self._process,
                Commit(stored.offset or 0, stored.metadata),
                start.position,
                start.known,
                held_back,
            ),
            self._rules,
            self._jitter,
        )
        self.owned[number] = partition
        return partition.offsets.position

    def revoke(self, numbers: Iterable[int], now: float) -> dict[int, Commit]:
        """They go: begin nothing more; returns the last word on each, to be committed and answered."""
        last: dict[int, Commit] = {}
        for number in numbers:
            partition = self.owned.get(number)
            if partition is None:
                continue
            self.commits.pop(number, None)
            self._do(number, Revoked(), now)
            if (commit := self.commits.pop(number, None)) is not None:
                last[number] = commit
            self.resting[number] = self.owned.pop(number)
        return last

    def lose(self, numbers: Iterable[int], now: float) -> None:
        """They are gone: nothing of them counts any more."""
        for number in numbers:
            if number in self.owned:
                self.resting[number] = self.owned.pop(number)
            self.commits.pop(number, None)
            self._forget(number, now)
        self._recount()

    def end(self, now: float) -> None:
        """The stream is over: what is still leased isn't its any more, so that later verdicts are stale."""
        self.lose([*self.owned, *self.resting], now)

    def _forget(self, number: int, now: float) -> None:
        partition = self.resting.pop(number, None)
        if partition is None:
            return
        self._past_finished += partition.finished
        self._past_positions[number] = partition.commits.stored.offset
        running = [
            lease
            for lease in partition.leases.active
            if lease.key is not None and lease.state in (LeaseState.WALKING, LeaseState.EXPIRED)
        ]
        self._effects(number, partition.handle(Lost(), now))
        self._lingering.update(running)

    def _recount(self) -> None:
        self._leased = sum(len(partition.leases.active) for partition in self._all())

    def _all(self) -> list[Partition]:
        return [*list(self.owned.values()), *list(self.resting.values())]

    # What happens

    def fetched(
        self, batches: Mapping[int, Sequence[Record]], now: float, *, inline: bool = False
    ) -> list[Lease]:
        """Records were read; those of partitions that aren't ours are dropped (they stay in the log).

        Returns the leases that the caller, who asks for them with `inline`, has to take itself.
        """
        leases: list[Lease] = []
        for number, records in batches.items():
            partition = self.owned.get(number)
            if partition is not None:
                self.counts.received += len(records)
                for effect in partition.handle(Fetched(records, inline), now):
                    if isinstance(effect, Deliver):
                        leases += effect.leases
        self._leased += len(leases)
        return leases

    def passed(self, passed: Passed, now: float) -> None:
        """An inline lease has ended."""
        self._to(passed.lease.partition, passed, now)

    def reserve(self, most: int) -> int:
        """Keeps up to `most` leases free for what inline callbacks keep, from now on; returns how many (rule 3)."""
        self._reserved = max(0, min(most, self._flow.max_messages - self._leased))
        return self._reserved

    @property
    def seat(self) -> Inline | None:
        """Where the fetcher may sit down beside the crew; None: nowhere."""
        return self._crew.inline

    def inline(self, partitions: int) -> bool:
        """Whether leases of so many partitions may be taken inline."""
        seat = self.seat
        return (
            not self.closing
            and self._flow.max_messages - self._leased >= partitions
            and seat is not None
            and seat.spares(idle=not self._leased)
        )

    def released(self, releases: Sequence[Release], now: float) -> None:
        """Holders let go."""
        by_partition: defaultdict[int, list[Release]] = defaultdict(list)
        for release in releases:
            lease = release.lease
            if self._lingering and lease in self._lingering:
                self._lingered(lease, now)
            by_partition[lease.partition].append(release)
        for number, some in by_partition.items():
            self._to(number, Released(some), now)

    def _lingered(self, lease: Lease, now: float) -> None:
        self._lingering.discard(lease)
        current = self.owned.get(lease.partition) or self.resting.get(lease.partition)
        if current is not None and lease.key is not None and current.epoch > lease.epoch:
            self._effects(lease.partition, current.handle(Ended([lease.key]), now))

    def settled(self, settlements: Sequence[Settlement], now: float) -> None:
        """Verdicts that came outside of handlers."""
        by_partition: defaultdict[int, list[Settlement]] = defaultdict(list)
        for settlement in settlements:
            by_partition[settlement.lease.partition].append(settlement)
        for number, some in by_partition.items():
            self._to(number, Settled(some), now)

    def extended(self, lease: Lease, done: int, seconds: float, now: float) -> None:
        """A message's deadline was moved."""
        self._to(lease.partition, Extended(lease, done, seconds), now)

    def answered(self, numbers: Mapping[int, bool], now: float) -> None:
        """The log answered commits: accepted or not."""
        for number, accepted in numbers.items():
            self.counts.commits += accepted
            self._to(number, CommitAnswered(accepted), now)

    def tick(self, now: float) -> None:
        """Time has passed: progress, deadlines, redeliveries, commits."""
        self.progress(now)
        for number in [*self.owned, *self.resting]:
            self._to(number, Tick(), now)

    def progress(self, now: float) -> None:
        """Looks how far the holders are."""
        steps: defaultdict[int, list[Progress]] = defaultdict(list)
        for holder in self._crew.walking():
            lease, done = holder.lease, holder.done
            if holder.begun and lease.state is LeaseState.WALKING:
                if done != holder.seen:
                    holder.seen, holder.seen_at = done, now
                steps[lease.partition].append(Progress(lease, done, holder.seen_at))
        for number, some in steps.items():
            self._to(number, Progressed(some), now)

    def wakeup_at(self) -> float | None:
        """When something becomes due by itself."""
        times = [partition.wakeup_at() for partition in self._all()]
        return min((time for time in times if time is not None), default=None)

    # What is done about it

    def deliver(self, now: float) -> bool:
        """Hands out what may be started now; True if anything was."""
        if self.closing:
            return False
        wanted = self._crew.wants(self._flow.max_messages - self._leased - self._reserved)
        numbers = [number for number, partition in self.owned.items() if partition.deliverable]
        handed = False
        for at in range(len(numbers)):
            if wanted <= 0:
                break
            share = -(-wanted // (len(numbers) - at))
            number = numbers[(at + self._turn) % len(numbers)]
            before = self._leased
            self._do(number, Demand(share, self._crew.run, self._crew.spread), now)
            wanted -= self._leased - before
            handed = handed or self._leased > before
        self._turn += 1
        return handed

    def stop(self) -> None:
        """Begin nothing more (closing); running handlers go on to the end of their record."""
        self.closing = True
        for partition in self._all():
            self._stop(partition.leases.active)

    def held(self) -> dict[int, Held]:
        """What each owned partition holds unfinished."""
        return {number: Held(len(p.offsets.unfinished), p.buffered) for number, p in list(self.owned.items())}

    def flow(self, held: Mapping[int, Held], *, waited: bool) -> Change[int]:
        """Which partitions to pause and resume."""
        return self.gate.change(held, waited=waited)

    def take_commits(self) -> dict[int, Commit]:
        """The commits to send now."""
        commits, self.commits = self.commits, {}
        return commits

    def current(self, commits: Mapping[int, Commit]) -> dict[int, Commit]:
        """Those that are still wanted: a partition that was revoked meanwhile has had its last word."""
        owned = self.owned
        return {
            number: commit
            for number, commit in commits.items()
            if number in owned and owned[number].commits.in_flight is commit
        }

    def _to(self, number: int, event: Event, now: float) -> None:
        if number in self.owned or number in self.resting:
            self._do(number, event, now)

    def _do(self, number: int, event: Event, now: float) -> None:
        partition = self.owned.get(number) or self.resting[number]
        before = len(partition.leases.active)
        effects = partition.handle(event, now)
        self._leased += len(partition.leases.active) - before
        if effects:
            self._effects(number, effects)

    def _effects(self, number: int, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case Deliver(leases):
                    self.counts.redelivered += sum(lease.attempt > 1 for lease in leases)
                    self._crew.take(leases)
                case Commit():
                    self.commits[number] = effect
                case Stop(leases):
                    self._stop(leases)
                case Withdraw(leases):
                    for lease in leases:
                        if isinstance(lease.holder, Holder):
                            lease.holder.withdrawn = lease.holder.stopped = True
                        lease.holder = None
                case Stale(verdicts):
                    self.counts.stale += verdicts
                case CommitBoth() | Relocate() | ReadBodies() | Trim() | Restart() | Announce():
                    raise InvariantViolated(f"no stream has a retry topic yet: {effect!r:.80}")

    def _stop(self, leases: Iterable[Lease]) -> None:
        for lease in leases:
            if isinstance(lease.holder, Holder):
                lease.holder.stopped = True

    # Looking in

    def in_flight(self) -> int:
        """Leases that aren't over."""
        return self._leased

    def finished(self) -> int:
        """Records that were acked, since the stream began."""
        return self._past_finished + sum(partition.finished for partition in self._all())

    def committed_positions(self) -> dict[int, int]:
        """The last committed position of each partition that this stream had."""
        return {
            **self._past_positions,
            **{partition.number: partition.commits.stored.offset for partition in self._all()},
        }

    def lingering(self) -> Counter[int]:
        """Old handlers that still run, by partition."""
        return Counter(lease.partition for lease in self._lingering)

    def check(self) -> None:
        """Checks every partition; for tests."""
        for partition in self._all():
            partition.check()
