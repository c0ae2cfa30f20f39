"""The partitions that a stream owns, those that rest, and callbacks that outlive an ownership.

Theory. Rebalances of the group take partitions away and mostly bring them back. Callbacks that began under an earlier
ownership go on running; `OwnedPartitions` holds their keys back until they end.

Rules
1. A revoked partition is *resting*: its state is kept, and no callback begins. If it returns and the log holds exactly
   our last commit, it goes on where it was; otherwise its leases are over, and it starts anew under a new epoch.
2. A key whose old callback still runs here is held back in the new ownership until that callback has ended.
3. A partition that is about to be given up sends no more commits by itself.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from kafka_pubsub.client.assignment.start_position import StartPosition
from kafka_pubsub.client.subscribe.due_partitions import DuePartitions
from kafka_pubsub.client.workers.forgotten_acks import ForgottenAcks
from kafka_pubsub.core.delivery.fetch_window import BufferGate
from kafka_pubsub.core.delivery.leases import Lease, LeaseState
from kafka_pubsub.core.effects import Commit, CommitBoth, Effect
from kafka_pubsub.core.events import Event, Lost, Returned, Revoked, Tick
from kafka_pubsub.core.partition import Partition
from kafka_pubsub.core.retry.crash_suspects import TrialLock
from kafka_pubsub.core.settings import Rules, Start
from kafka_pubsub.model import Committed

__all__ = ["OwnedPartitions", "running"]


class OwnedPartitions(ABC):
    """The partitions of one stream, owned and resting, and the leases that are over while their callbacks run."""

    def __init__(
        self,
        rules: Rules,
        process: int,
        jitter: Callable[[], float],
        max_bytes: int,
        turn: TrialLock | None = None,
    ) -> None:
        self._rules = rules
        #: The number of this process in its commits.
        self.process = process
        self._jitter = jitter
        self._suspects = turn or TrialLock()
        self._epochs = 0
        #: The assigned partitions.
        self.owned: dict[int, Partition] = {}
        #: Revoked partitions that may return.
        self.resting: dict[int, Partition] = {}
        #: Leases that are over while their callbacks still run; each holds its key back.
        self._lingering: set[Lease] = set()
        #: Commits to send, the newest of each partition.
        self.commits: dict[int, CommitBoth] = {}
        #: New final commits of partitions that were given up, because their last move was aborted.
        self.afterwords: dict[int, CommitBoth] = {}
        #: Partitions that are about to be given up (rule 3).
        self._leaving: set[int] = set()
        #: Which partitions a sweep must visit.
        self.attention = DuePartitions(self.owned, self.resting, self._leaving)
        self.gate: BufferGate[int] = BufferGate(max_bytes)
        #: The finished records and committed positions of partitions that are gone.
        self._past_finished = 0
        self._past_positions: dict[int, int] = {}
        self._past_retries: dict[int, int] = {}
        self._leased = 0
        #: Whether the stream ends: revoked partitions don't return then.
        self.closing = False
        #: Warns of callbacks that never ack; None: no warning is wanted.
        self.forgotten: ForgottenAcks | None = None

    @abstractmethod
    def _do(self, number: int, event: Event, now: float) -> None:
        """Passes an event to a partition, and carries out its effects."""

    @abstractmethod
    def _effects(self, number: int, effects: Sequence[Effect], now: float) -> None:
        """Carries out a partition's effects."""

    # Ownership

    def returns(self, number: int, committed: Committed, beside: Committed) -> int | None:
        """Returns the position of a resting partition in memory, or None if another owner has committed since."""
        partition = self.resting.get(number)
        if partition is None or partition.commits.stored != _stored(committed, beside):
            return None
        return partition.offsets.position

    def assign(
        self,
        committed: Mapping[int, Committed],
        begin: Callable[[int, Committed], StartPosition],
        now: float,
        beside: Mapping[int, Committed],
    ) -> dict[int, int]:
        """Takes on partitions; returns the offset at which to read each. Drops resting partitions that didn't return.

        `beside`: the commits stored for their retry partitions.
        """
        positions: dict[int, int] = {}
        self.gate.forget(committed)
        for number, stored in committed.items():
            retry = beside[number]
            position = self.returns(number, stored, retry)
            if position is not None:
                self.owned[number] = self.resting.pop(number)
                self._do(number, Returned(), now)
            else:
                self._forget(number, now)
                position = self._start(number, _stored(stored, retry), begin(number, stored))
            positions[number] = position
        for number in list(self.resting):
            self._forget(number, now)
        self._recount()
        return positions

    def _start(self, number: int, stored: CommitBoth, start: StartPosition) -> int:
        self._epochs += 1
        held_back = [
            lease.key for lease in self._lingering if lease.partition == number and lease.key is not None
        ]
        partition = Partition(
            Start(
                number,
                self._epochs,
                self.process,
                stored,
                start.position,
                start.retry,
                start.known,
                held_back,
            ),
            self._rules,
            self._jitter,
            self._suspects,
        )
        self.owned[number] = partition
        self.attention.stir(number)
        return partition.offsets.position

    def first_words(self, numbers: Iterable[int], now: float) -> dict[int, CommitBoth]:
        """Returns the commits to make before any message of these partitions is delivered."""
        for number in numbers:
            self._do(number, Tick(), now)
        return {number: self.commits.pop(number) for number in numbers if number in self.commits}

    def hold_still(self, numbers: Iterable[int]) -> None:
        """Stops new commits before a revoke; the final commit then holds everything that is left."""
        self._leaving.update(numbers)
        self.attention.stir_all(self._leaving)

    def revoke(self, numbers: Sequence[int], now: float) -> dict[int, CommitBoth]:
        """Revokes partitions and begins no more of their leases; returns their final commits, to be sent."""
        last: dict[int, CommitBoth] = {}
        self._leaving.difference_update(numbers)
        for number in numbers:
            partition = self.owned.get(number)
            if partition is None:
                continue
            self.commits.pop(number, None)
            self._do(number, Revoked(closing=self.closing), now)
            if (commit := self.commits.pop(number, None)) is not None:
                last[number] = commit
            self.resting[number] = self.owned.pop(number)
        self.attention.stir_all(numbers)
        return last

    def take_afterwords(self) -> dict[int, CommitBoth]:
        """Returns the commits that partitions still have to send after they were given up."""
        words, self.afterwords = self.afterwords, {}
        return words

    def lose(self, numbers: Sequence[int], now: float) -> None:
        """Drops partitions that were lost; their leases and commits no longer count."""
        self._leaving.difference_update(numbers)
        for number in numbers:
            if number in self.owned:
                self.resting[number] = self.owned.pop(number)
            self.commits.pop(number, None)
            self._forget(number, now)
        self.attention.stir_all(numbers)
        self._recount()

    def end(self, now: float) -> None:
        """Ends all leases with the stream, so that later lease reports are stale."""
        if self.forgotten is not None:
            self.forgotten.closing(lease for each in self._all() for lease in each.leases.active)
        self.lose([*self.owned, *self.resting], now)

    def _forget(self, number: int, now: float) -> None:
        partition = self.resting.pop(number, None)
        self.attention.stir(number)
        if partition is None:
            return
        self._past_finished += partition.finished
        self._past_positions[number] = partition.commits.stored.offset
        self._past_retries[number] = partition.commits.stored.retry.offset
        old = running(partition)
        self._effects(number, partition.handle(Lost(), now), now)
        self._lingering.update(old)

    def _recount(self) -> None:
        self._leased = sum(len(partition.leases.active) for partition in self._all())

    def _all(self) -> list[Partition]:
        return [*list(self.owned.values()), *list(self.resting.values())]

    # Looking in

    def finished(self) -> int:
        """Returns the number of records finished since the stream began."""
        return self._past_finished + sum(partition.finished for partition in self._all())

    def committed_positions(self) -> dict[int, int]:
        """Returns the last committed position of each partition that this stream had."""
        return {
            **self._past_positions,
            **{partition.number: partition.commits.stored.offset for partition in self._all()},
        }

    def retry_positions(self) -> dict[int, int]:
        """Returns the same for their partitions of the retry topic."""
        return {
            **self._past_retries,
            **{partition.number: partition.commits.stored.retry.offset for partition in self._all()},
        }

    def lingering(self) -> Counter[int]:
        """Counts the callbacks of earlier ownerships that still run, by partition."""
        return Counter(lease.partition for lease in self._lingering)


def _stored(main: Committed, retry: Committed) -> CommitBoth:
    """Returns the stored commits of both partitions in the form in which a core has them."""
    beside = Commit(retry.offset or 0, retry.metadata, retry.epoch)
    return CommitBoth(main.offset or 0, main.metadata, beside, main.epoch)


def running(partition: Partition) -> list[Lease]:
    """Returns leases with a running callback, which hold their keys back, not those that still wait for their note."""

    def runs(lease: Lease) -> bool:
        return lease.state is LeaseState.EXPIRED or (
            lease.state is LeaseState.WALKING and lease.holder is not None
        )

    return [lease for lease in partition.leases.active if lease.key is not None and runs(lease)]
