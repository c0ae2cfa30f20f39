"""Finds the partitions that a sweep must visit: those that got an event, and those that are due.

Theory. A stream may own a thousand partitions, and it sweeps up to some thousand times a second. A partition's answers
to a sweep change only when it gets an event. So each partition is asked once after an event, and its answers are kept
here. The question when it becomes due takes ten times as long as the question what it has, and a sweep needs that
answer only once, at its end.

Rules
1. Each call that gives a partition an event also calls `stir`. Before an answer is read, the partitions with events
   since are asked again for it. Before a tick, partitions that get the tick anyhow aren't asked when they are due.
2. A tick goes to each partition that got an event since its last tick, is restless, is paused, or is due. When the
   wall clock was set, it goes to all.
3. A partition is restless while its next tick may do something that `wakeup_at` doesn't announce: a callback runs, a
   commit is in flight, or time alone decides (`Maintenance.restless`).
4. A partition that is about to be given up gets no tick and wakes none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from math import inf

from kafka_pubsub.partition_id import PartitionId
from kafka_pubsub.subscribe.fetch_window import Held
from kafka_pubsub.subscribe.partition.partition import Partition

__all__ = ["DuePartitions"]


class DuePartitions:
    """The kept answers of one coordinator's partitions."""

    def __init__(
        self,
        owned: Mapping[PartitionId, Partition],
        resting: Mapping[PartitionId, Partition],
        leaving: Collection[PartitionId],
    ) -> None:
        self._owned, self._resting, self._leaving = owned, resting, leaving
        #: Partitions that got an event since they were asked when they are due, since they were asked what they have,
        #: and since their last tick.
        self._when: set[PartitionId] = set()
        self._what: set[PartitionId] = set()
        self._stirred: set[PartitionId] = set()
        self._restless: set[PartitionId] = set()
        #: When partitions become due by themselves; and when the first of them does, None if that isn't known.
        self._due: dict[PartitionId, float] = {}
        self._soonest: float | None = inf
        self._deliverable: set[PartitionId] = set()
        self._hurried: set[PartitionId] = set()
        self._careful: set[PartitionId] = set()
        self._waiting_suspects: dict[PartitionId, int] = {}
        self._held: dict[PartitionId, Held] = {}
        #: Partitions that got an event since `take_touched`.
        self._touched: set[PartitionId] = set()
        #: The wall clock less our clock, as of the last tick that gave it; None before the first.
        self._wall: float | None = None

    def stir(self, number: PartitionId, *, tick: bool = False) -> None:
        """Notes that a partition got an event, came or went; `tick`: the event was a tick that had no effects."""
        self._when.add(number)
        self._what.add(number)
        self._touched.add(number)
        if not tick:
            self._stirred.add(number)

    def take_touched(self) -> set[PartitionId]:
        """Returns the partitions that got an event, came or went since the last call."""
        touched, self._touched = self._touched, set()
        return touched

    def stir_all(self, numbers: Iterable[PartitionId]) -> None:
        """Notes the same for several partitions."""
        for number in numbers:
            self.stir(number)

    def to_tick(
        self, now: float, paused: Collection[PartitionId], wall: float | None
    ) -> Collection[PartitionId]:
        """Returns the partitions that get a tick now."""
        self._ask_when(self._when - self._stirred)
        if wall is not None and wall != self._wall:
            self._wall = wall
            found = {*self._owned, *self._resting}
        else:
            found = self._stirred | self._restless
            found.update(paused)
            if self._first_due() <= now:
                found.update(number for number, at in self._due.items() if at <= now)
        self._stirred = set()
        found.difference_update(self._leaving)
        return found

    def wakeup_at(self) -> float | None:
        """Returns when the first partition becomes due by itself; None if none does."""
        self._ask_when(self._when)
        first = self._first_due()
        return None if first == inf else first

    def _first_due(self) -> float:
        if self._soonest is None:
            self._soonest = min(self._due.values(), default=inf)
        return self._soonest

    @property
    def restless(self) -> bool:
        """Whether the next tick may do something though nothing is due."""
        self._ask_when(self._when)
        self._ask_what()
        return bool(self._stirred or self._restless or self._deliverable)

    def deliverable(self) -> list[PartitionId]:
        """Returns the owned partitions that may hand out a lease."""
        self._ask_what()
        return sorted(self._deliverable)

    @property
    def hurried(self) -> bool:
        """Whether callbacks wait for a commit."""
        self._ask_what()
        return bool(self._hurried)

    @property
    def careful(self) -> bool:
        """Whether messages of the home topic are noted in a commit before they start."""
        self._ask_what()
        return bool(self._careful)

    @property
    def waiting_suspects(self) -> Mapping[PartitionId, int]:
        """The number of suspects that wait for their trial, by owned partition with any."""
        self._ask_what()
        return self._waiting_suspects

    @property
    def held(self) -> Mapping[PartitionId, Held]:
        """The unfinished records of owned partitions; partitions without any are left out."""
        self._ask_what()
        return self._held

    def _ask_when(self, numbers: Collection[PartitionId]) -> None:
        for number in numbers:
            left = number in self._leaving
            partition = None if left else self._owned.get(number) or self._resting.get(number)
            due = None if partition is None else partition.wakeup_at()
            if due != self._due.get(number):
                self._soonest = None
                if due is None:
                    del self._due[number]
                else:
                    self._due[number] = due
            _put(self._restless, number, partition is not None and partition.restless)
        self._when = self._when.difference(numbers)

    def _ask_what(self) -> None:
        if not self._what:
            return
        changed, self._what = self._what, set()
        for number in changed:
            self._ask_one(number, self._owned.get(number))

    def _ask_one(self, number: PartitionId, owned: Partition | None) -> None:
        _put(self._deliverable, number, owned is not None and owned.deliverable)
        _put(self._hurried, number, owned is not None and owned.hurried)
        _put(self._careful, number, owned is not None and owned.careful)
        self._waiting_suspects.pop(number, None)
        if owned is not None and (waiting_suspects := owned.waiting_suspects):
            self._waiting_suspects[number] = waiting_suspects
        self._held.pop(number, None)
        if owned is not None and (count := owned.unfinished):
            self._held[number] = Held(count, owned.buffered, owned.finished)


def _put(some: set[PartitionId], number: PartitionId, member: bool) -> None:
    (some.add if member else some.discard)(number)
