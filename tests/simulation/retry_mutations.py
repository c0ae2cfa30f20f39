"""Rules of the retry topic, each taken out of the client: the simulation must notice.

Each of the protocol's bold rules is here, and the others that the tests of the retry topic have to see.
`RETRY_MUTATIONS` names them all, with the plans that show them; like `mutations`, they are put in by patching, so that
the code itself stays whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf
from typing import Any

import pytest

from kafka_pubsub.errors import DeadlineExceeded
from kafka_pubsub.log.memory.groups import Group
from kafka_pubsub.log.memory.reader import MemoryReader
from kafka_pubsub.log.memory.record import MemoryRecord
from kafka_pubsub.model import Answered, CommitAnswers, Ending, LogEnd, Membership, Positions, TopicPartition
from kafka_pubsub.partition_id import PartitionId
from kafka_pubsub.subscribe.coordinator import Coordinator
from kafka_pubsub.subscribe.due_partitions import DuePartitions
from kafka_pubsub.subscribe.formats.record import NO_MESSAGES, RETRY_HEADER, RetryInfo, decode
from kafka_pubsub.subscribe.partition import parked_keys, retry_state
from kafka_pubsub.subscribe.partition.effects import Effect
from kafka_pubsub.subscribe.partition.finished_runs import FinishedRuns
from kafka_pubsub.subscribe.partition.maintenance import Maintenance
from kafka_pubsub.subscribe.partition.moves import Move, MoveQueue
from kafka_pubsub.subscribe.partition.next_move import NextMoves
from kafka_pubsub.subscribe.partition.offsets import Offsets
from kafka_pubsub.subscribe.partition.parked_keys import ParkedKeys, Standing
from kafka_pubsub.subscribe.partition.partition import Partition
from kafka_pubsub.subscribe.partition.retry_partition import RetryPartition
from kafka_pubsub.subscribe.partition.retry_state import RetryState
from kafka_pubsub.subscribe.retry_topic.transaction_thread import MoveResult
from kafka_pubsub.subscribe.stream.runner import StreamRunner
from kafka_pubsub.subscribe.takeover.paired_partitions import PairedPartitions
from kafka_pubsub.subscribe.takeover.rejoining_reader import RejoiningReader
from tests.simulation import variants
from tests.simulation.checkpoint_mutations import CHECKPOINT_MUTATIONS
from tests.simulation.death_mutations import DEATH_MUTATIONS
from tests.simulation.plan import PlanVariant
from tests.simulation.retry import SteppedRelocating
from tests.simulation.retry_ledger import RETRY
from tests.simulation.trouble import TOPIC

__all__ = ["RETRY_MUTATIONS"]

Patch = pytest.MonkeyPatch


# Taking partitions on


def half_is_enough(patch: Patch) -> None:
    """A pair is served though a half isn't ours ("whole or nothing")."""
    patch.setattr(PairedPartitions, "_whole", lambda self, number: True)


def up_to_the_last_stable(patch: Patch) -> None:
    """The retry partition is read as far as committed records go ("up to the high watermark")."""

    def stable(self: MemoryReader, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        with self._cluster.changed:
            return {partition: self._cluster.log(partition).stable_end for partition in partitions}

    def ranges(
        self: MemoryReader, partitions: Sequence[TopicPartition], timeout: float
    ) -> Mapping[TopicPartition, tuple[int, int]]:
        return {
            place: (start, stable(self, [place])[place])
            for place, (start, _) in real(self, partitions, timeout).items()
        }

    real = MemoryReader.reachable_ranges
    patch.setattr(MemoryReader, "high_watermarks", stable)
    patch.setattr(MemoryReader, "reachable_ranges", ranges)


def main_at_once(patch: Patch) -> None:
    """Main is delivered before the retry partition was read."""
    real = PairedPartitions._begin

    def begin(self: PairedPartitions, numbers: Sequence[PartitionId]) -> dict[TopicPartition, LogEnd]:
        starts = real(self, numbers)
        for number in self._behind.keys() & set(numbers):
            self._behind[number] = 0, self._behind[number][1]
        return starts

    patch.setattr(PairedPartitions, "_begin", begin)


def gone_with_its_original(patch: Patch) -> None:
    """Records of the retry partition aren't read when main has lost their original."""
    real = MemoryReader._read_partition

    def read(
        self: MemoryReader, partition: TopicPartition, position: int, limit: int
    ) -> Sequence[MemoryRecord]:
        if partition.topic != RETRY:
            return real(self, partition, position, limit)
        records = real(self, partition, position, 1_000_000)
        start = self._cluster.log(TopicPartition(TOPIC, partition.partition)).start
        found = [(record, decode(dict(record.headers() or ()).get(RETRY_HEADER))) for record in records]
        left = [
            record
            for record, info in found
            if not isinstance(info, RetryInfo) or info.why in NO_MESSAGES or info.origin >= start
        ]
        return left[:limit]

    patch.setattr(MemoryReader, "_read_partition", read)


def writers_left_alone(patch: Patch) -> None:
    """Nobody ends what a killed owner left open."""
    patch.setattr(PairedPartitions, "_fence_writers", lambda self, places, all_of_them: None)


def id_unreported(patch: Patch) -> None:
    """A move may come before the commit that tells who we are."""
    real = RetryPartition.send

    def send(self: RetryPartition, now: float, *, closing: bool) -> Iterator[Effect]:
        before, self.announced = self.announced, True
        effects = list(real(self, now, closing=closing))
        self.announced = before
        return iter(effects)

    patch.setattr(RetryPartition, "send", send)
    patch.setattr(RetryPartition, "may_begin", property(lambda self: self.retries.caught_up))
    patch.setattr(StreamRunner, "announce", lambda self, numbers: None)


def read_before(patch: Patch) -> None:
    """Records that were read before an ownership began anew are booked under it."""
    real = PairedPartitions._begin_again

    def begin_again(self: PairedPartitions) -> Sequence[int]:
        real(self)
        return ()

    patch.setattr(PairedPartitions, "_begin_again", begin_again)


# Order and time


def not_read_past(patch: Patch) -> None:
    """A message goes before main was read past its origin ("read past")."""
    real = ParkedKeys.settle

    def settle(
        self: ParkedKeys, key: bytes, main: int | None, position: int, now: float, *, held: bool = False
    ) -> Standing:
        return real(self, key, main, 2**60, now, held=held)

    patch.setattr(ParkedKeys, "settle", settle)


def retries_on_credit(patch: Patch) -> None:
    """The retry partition stops being read together with main ("no fetch credit for retries")."""
    real = MemoryReader.pause
    names: dict[str, str] = {"orders": "orders.sub.billing.retry"}

    def pause(self: MemoryReader, partitions: Sequence[TopicPartition]) -> None:
        beside = [TopicPartition(names[each.topic], each.partition) for each in partitions]
        real(self, [*partitions, *beside])

    def resume(self: MemoryReader, partitions: Sequence[TopicPartition]) -> None:
        beside = [
            TopicPartition(names[each.topic], each.partition) for each in partitions if each.topic in names
        ]
        real_resume(self, [*partitions, *beside])

    real_resume = MemoryReader.resume
    patch.setattr(MemoryReader, "pause", pause)
    patch.setattr(MemoryReader, "resume", resume)
    patch.setattr(Maintenance, "_stands", lambda self, now: False)


def before_it_is_due(patch: Patch) -> None:
    """Nobody looks at the clock."""
    patch.setattr(parked_keys, "passed", lambda now: 2**61)


def waits_without_limit(patch: Patch) -> None:
    """A due time is believed, however far away."""
    patch.setattr(NextMoves, "_longest", lambda self, why: float("inf"))


def parked_key_forgotten(patch: Patch) -> None:
    """A key goes on as soon as a single message of the key has gone."""
    real = ParkedKeys.settle

    def settle(
        self: ParkedKeys, key: bytes, main: int | None, position: int, now: float, *, held: bool = False
    ) -> Standing:
        standing = real(self, key, main, position, now, held=held)
        if standing is Standing.DUE:
            del self.lines[key]
            return Standing.GONE
        return standing

    patch.setattr(ParkedKeys, "settle", settle)
    _unchecked(patch)


def parked_key_taken(patch: Patch) -> None:
    """Messages of main are handed out, though earlier messages of their key wait in the retry partition."""
    real = RetryState.__init__

    def init(self: RetryState, *arguments: object) -> None:
        real(self, *arguments)  # type: ignore[arg-type]
        self._queues.parked = ()

    patch.setattr(RetryState, "__init__", init)
    _unchecked(patch)


def key_freed_when_stored(patch: Patch) -> None:
    """A key goes on when its message has left, though it hasn't arrived."""
    real = MoveQueue.stored

    def stored(self: MoveQueue[Any]) -> Sequence[Any]:
        moves = list(real(self))
        for move in moves:
            if isinstance(move, Move):
                move.read_back = True
        return moves

    patch.setattr(MoveQueue, "stored", stored)


def backlog_stays(patch: Patch) -> None:
    """Messages behind a parked key are never moved, so others can't get by (I6)."""
    patch.setattr(retry_state.RetryState, "relieve", lambda self, key, now: False)
    patch.setattr(Maintenance, "_stands", lambda self, now: False)
    patch.setattr(Maintenance, "_thin_out", lambda self, now, most=0: None)


# Commits


def two_in_flight(patch: Patch) -> None:
    """A plain commit is sent while a move is on its way ("a single commit in flight")."""
    real = RetryPartition.send

    def send(self: RetryPartition, now: float, *, closing: bool) -> Iterator[Effect]:
        yield from real(self, now, closing=closing)
        in_flight = self.commits.in_flight
        if in_flight is not None and self.retries.moves.unanswered and self.commits.dirty:
            yield self.commits._both(self.commits._progress(()), clean=False)

    patch.setattr(RetryPartition, "send", send)
    patch.setattr(
        Coordinator,
        "current",
        lambda self, commits: {n: c for n, c in commits.items() if n in self.partitions.owned},
    )


def move_beside_a_commit(patch: Patch) -> None:
    """A move doesn't wait for the plain commit's answer."""
    real = RetryPartition.send

    def send(self: RetryPartition, now: float, *, closing: bool) -> Iterator[Effect]:
        beside = self.commits.in_flight is not None and self.announced and not self.retries.moves.unanswered
        if beside and (batch := self.retries.load(now, early=True)):
            yield self.commits.transaction(batch, now)
        else:
            yield from real(self, now, closing=closing)

    patch.setattr(RetryPartition, "send", send)


def given_up_is_answered(patch: Patch) -> None:
    """A commit that isn't answered in time counts as refused while it may still be stored."""
    real = RejoiningReader.commit

    def commit(self: RejoiningReader, positions: Positions, answered: Answered) -> None:
        answers: list[CommitAnswers] = []
        real(self, positions, answers.append)
        refusal = DeadlineExceeded("no answer")
        answered(answers[0] if answers else dict.fromkeys(positions, refusal))

    patch.setattr(RejoiningReader, "commit", commit)
    patch.setattr(RejoiningReader, "unanswered", lambda self: False)
    patch.setattr(RejoiningReader, "settle", lambda self: True)


def commit_before_ack(patch: Patch) -> None:
    """The oldest unfinished message counts as finished."""

    def committable(self: Offsets) -> int:
        return next(iter(list(self.unfinished)[1:]), self.position)

    patch.setattr(Offsets, "committable", property(committable))


def source_finished_at_once(patch: Patch) -> None:
    """A plain commit calls messages finished that are only on their way."""
    real = retry_state.RetryState.depart

    def depart(self: retry_state.RetryState, move: Move) -> None:
        real(self, move)
        if move.source is None:
            self._offsets.finish([move.record])

    patch.setattr(retry_state.RetryState, "depart", depart)
    _unchecked(patch)


def map_truncated(patch: Patch) -> None:
    """Only the first run of main's map is kept."""
    real = Offsets.runs
    patch.setattr(Offsets, "runs", lambda self: real(self)[:1])


def retry_map_truncated(patch: Patch) -> None:
    """Only the first run of the retry partition's map is kept."""
    real = FinishedRuns.runs.fget  # type: ignore[attr-defined]
    patch.setattr(FinishedRuns, "runs", property(lambda self: real(self)[:1]))
    _unchecked(patch)


# Moves


def plain_move(patch: Patch) -> None:
    """Records are appended first, and the positions committed after that ("move in a single transaction")."""

    def begin(self: SteppedRelocating) -> None:
        move_request = self._waiting.popleft()
        cluster = self._transactions._cluster
        for record in move_request.records:
            cluster.append(record.topic, record.partition, record.value, record.key, list(record.headers))
        self._together = [move_request]
        self._take_off()
        if self._steps is not None:
            self._steps = self._transactions.steps([], move_request.positions, move_request.membership)

    patch.setattr(SteppedRelocating, "_begin", begin)


def fenced_by_ownership(patch: Patch) -> None:
    """A move is sent under whatever membership there is when it leaves."""
    real = SteppedRelocating._take_off

    def take_off(self: SteppedRelocating) -> None:
        now = self._membership()
        if now is not None:
            self._together = [move_request._replace(membership=now) for move_request in self._together]
        real(self)

    patch.setattr(SteppedRelocating, "_take_off", take_off)


def nobody_fenced(patch: Patch) -> None:
    """The group takes commits from former members and of former generations."""

    def fence(self: Group, member: str | None, generation: int) -> None:
        return None

    def membership(self: MemoryReader) -> Membership | None:
        return self._membership or Membership(self._group, ("", 0))

    patch.setattr(Group, "fence", fence)
    patch.setattr(
        Group,
        "commit",
        lambda self, member, generation, positions, now: {
            partition: self.store(partition, value) for partition, value in positions.items()
        },
    )
    patch.setattr(MemoryReader, "membership", membership)


def unknown_is_aborted(patch: Patch) -> None:
    """An owner that doesn't know the outcome of a transaction goes on as if it had failed."""
    _unknown_is(patch, Ending.ABORTED)


def unknown_is_stored(patch: Patch) -> None:
    """An owner that doesn't know the outcome of a transaction goes on as if it had succeeded."""
    _unknown_is(patch, Ending.STORED)


def _unknown_is(patch: Patch, ending: Ending) -> None:
    real = PairedPartitions.move_answered

    def move_answered(self: PairedPartitions, move_result: MoveResult) -> None:
        unknown = move_result.ending is Ending.UNKNOWN
        real(self, move_result._replace(ending=ending) if unknown else move_result)

    patch.setattr(PairedPartitions, "move_answered", move_answered)


def dead_letter_holds_up_all(patch: Patch) -> None:
    """Nothing of a partition moves while its dead letters are written."""
    real = RetryState.load
    patch.setattr(
        RetryState, "load", lambda self, *a, **k: () if self.dead_letters.unanswered else real(self, *a, **k)
    )


def due_and_unticked(patch: Patch) -> None:
    """A sweep ticks partitions with an event, and forgets those that are due by themselves."""
    patch.setattr(DuePartitions, "_first_due", lambda self: inf)


def _unchecked(patch: Patch) -> None:
    """The client's own checks would notice first; the simulation has to see it from outside."""
    patch.setattr(Partition, "check", lambda self: None)


#: Which plans show each of them within a few dozen seeds.
RETRY_MUTATIONS: Mapping[Callable[[Patch], None], PlanVariant] = {
    half_is_enough: variants.beside,
    up_to_the_last_stable: variants.late,
    main_at_once: variants.failing,
    gone_with_its_original: variants.eaten,
    writers_left_alone: variants.dying,
    id_unreported: variants.unannounced,
    read_before: variants.reading,
    not_read_past: variants.slow,
    retries_on_credit: variants.stuck,
    before_it_is_due: variants.patient,
    waits_without_limit: variants.wrong_clocks,
    parked_key_forgotten: variants.failing,
    parked_key_taken: variants.failing,
    key_freed_when_stored: variants.failing,
    backlog_stays: variants.stuck,
    two_in_flight: variants.failing,
    move_beside_a_commit: variants.crossing,
    given_up_is_answered: variants.late_commits,
    commit_before_ack: variants.failing,
    source_finished_at_once: variants.failing,
    map_truncated: variants.failing,
    retry_map_truncated: variants.parking,
    plain_move: variants.dying,
    fenced_by_ownership: variants.evicted,
    nobody_fenced: variants.stalling,
    unknown_is_aborted: variants.unknown,
    unknown_is_stored: variants.unknown,
    dead_letter_holds_up_all: variants.silent,
    due_and_unticked: variants.failing,
    **CHECKPOINT_MUTATIONS,
    **DEATH_MUTATIONS,
}
