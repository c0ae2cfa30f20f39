"""Each rule of the retry partition is needed: taken out of the core, a promise breaks in some schedule."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

import pytest

from kafka_pubsub.errors import InvariantViolated
from kafka_pubsub.model import Ending
from kafka_pubsub.subscribe.formats import ack_map
from kafka_pubsub.subscribe.formats.checkpoint import split
from kafka_pubsub.subscribe.formats.record import RetryInfo, Why, retry_headers
from kafka_pubsub.subscribe.partition import commits, maintenance, parked_keys, retry_partition, retry_state
from kafka_pubsub.subscribe.partition.appointments import Appointments
from kafka_pubsub.subscribe.partition.checkpoint_schedule import Checkpoints
from kafka_pubsub.subscribe.partition.commits import Commits
from kafka_pubsub.subscribe.partition.copies import Copies
from kafka_pubsub.subscribe.partition.crash_suspects import CrashSuspects, TrialLock
from kafka_pubsub.subscribe.partition.effects import Commit, CommitBoth, Deliver
from kafka_pubsub.subscribe.partition.events import (
    CommitAnswered,
    Demand,
    Event,
    Fetched,
    MovesAnswered,
    RetryCaughtUp,
    RetryFetched,
    Tick,
)
from kafka_pubsub.subscribe.partition.handout import Handout, Taken
from kafka_pubsub.subscribe.partition.key_line import NEVER, Entry
from kafka_pubsub.subscribe.partition.lease_outcomes import RecordOutcomes
from kafka_pubsub.subscribe.partition.leases import Lease
from kafka_pubsub.subscribe.partition.moves import Move, MoveQueue
from kafka_pubsub.subscribe.partition.parked_keys import ParkedKeys, Standing
from kafka_pubsub.subscribe.partition.partition import Partition
from kafka_pubsub.subscribe.partition.retry_partition import RetryPartition
from kafka_pubsub.subscribe.partition.settings import Exhausted, Found, LogStart, Rules, Start
from tests.checkpoint_rules import (
    trimmed_before_the_answer,
    trimmed_past_the_checkpoint,
)
from tests.partition_ids import P
from tests.property.retry_kafka import Stored
from tests.property.retry_world import TOPIC_ID, Plan, World
from tests.seeds import fixed, of_the_day
from tests.support import FakeBody

Patch = pytest.MonkeyPatch
NACKS = Plan(nacks=0.6)
LATE = Plan(nacks=0.2, crashes=0.03, messages=60)
LOOSE = Plan(ordered=False, nacks=0.5, messages=60)
PARKED = Plan(on_exhausted=Exhausted.PARK, nacks=0.75, keys=(b"a", b"b", b"c", b"d", b"e", None), messages=60)
CROWDED = Plan(
    nacks=0.6,
    keys=(b"a", b"b", b"c", b"d", b"e"),
    messages=60,
    crashes=0.003,
    stalls=0.2,
    unknown=0.02,
    aborts=0.05,
    refusals=0.02,
    after_checkpoints=40,
)
DOUBTS = Plan(nacks=0.4, doubts=0.05)
CLOCKS = Plan(nacks=0.5, clock_steps=0.05)
FORGOTTEN = Plan(forgets=0.006, nacks=0.5, max_attempts=3, crashes=0.003)
KILLER = Plan(nacks=0.0, crashes=0.0, unknown=0.0, aborts=0.0, refusals=0.0, killers=frozenset({0, 1, 2, 3}))


def not_read_past(patch: Patch) -> None:
    """A retried message doesn't wait until main was read past its origin."""
    real = ParkedKeys.settle

    def settle(
        self: ParkedKeys, key: bytes, main: int | None, position: int, now: float, *, held: bool
    ) -> Standing:
        return real(self, key, main, 2**60, now, held=held)

    patch.setattr(ParkedKeys, "settle", settle)


def not_up_to_the_high_watermark(patch: Patch) -> None:
    """Delivery begins before the retry partition was read to its end."""
    patch.setattr(RetryPartition, "may_begin", property(lambda self: self.announced))


def old_commits_tell_of_now(patch: Patch) -> None:
    """A commit that was made before the process stood still lets handlers begin after it."""
    real = RetryPartition.returned

    def returned(self: RetryPartition) -> None:
        real(self)
        self._before = None

    patch.setattr(RetryPartition, "returned", returned)


def clock_of_the_takeover(patch: Patch) -> None:
    """The wall clock is looked at once."""
    real = RetryPartition.tick
    patch.setattr(RetryPartition, "tick", lambda self, event, now: real(self, event._replace(wall=None), now))


def before_it_is_due(patch: Patch) -> None:
    """Nobody looks at the clock."""
    patch.setattr(parked_keys, "passed", lambda now: 2**61)


def parked_keys_taken(patch: Patch) -> None:
    """Messages of main are handed out, though earlier messages of their key wait in the retry partition."""
    real = retry_state.RetryState.__init__

    def init(self: retry_state.RetryState, *arguments: object) -> None:
        real(self, *arguments)  # type: ignore[arg-type]
        self._queues.parked = ()

    patch.setattr(retry_state.RetryState, "__init__", init)


def keys_of_a_span_forgotten(patch: Patch) -> None:
    """A parked key isn't looked at when the span of its due time begins."""
    real = Appointments._begin

    def begin(self: Appointments, span: int) -> None:
        self._later[span] = []
        real(self, span)

    patch.setattr(Appointments, "_begin", begin)


def key_freed_when_stored(patch: Patch) -> None:
    """A key goes on when its message has left, though it hasn't arrived."""
    real = MoveQueue.stored

    def stored(self: MoveQueue[Any]) -> Iterable[Any]:
        moves = real(self)
        for move in moves:
            if isinstance(move, Move):
                move.read_back = True
        return moves

    patch.setattr(MoveQueue, "stored", stored)


def unknown_is_aborted(patch: Patch) -> None:
    """An owner that doesn't know the outcome of a transaction goes on as if the transaction had failed."""
    real = Partition.handle

    def handle(self: Partition, event: Event, now: float) -> object:
        if isinstance(event, MovesAnswered) and event.ending is Ending.UNKNOWN:
            event = MovesAnswered(Ending.ABORTED)
        return real(self, event, now)

    patch.setattr(Partition, "handle", handle)


def source_finished_at_once(patch: Patch) -> None:
    """A plain commit calls messages finished that are only on their way."""
    real = retry_state.RetryState.depart

    def depart(self: retry_state.RetryState, move: Move) -> None:
        real(self, move)
        if move.source is None:
            self._offsets.finish([move.record])
            patch.setattr(Partition, "check", lambda self: None)

    patch.setattr(retry_state.RetryState, "depart", depart)


def no_checkpoints(patch: Patch) -> None:
    """A commit that doesn't fit the metadata isn't noticed."""
    patch.setattr(Checkpoints, "wanted", lambda self, size, now: False)


def started_unnoted(patch: Patch) -> None:
    """After a crash handlers start as ever."""
    patch.setattr(CrashSuspects, "concerns", lambda self, offset: False)


def several_trials(patch: Patch) -> None:
    """Suspects are tried together."""
    patch.setattr(TrialLock, "take", lambda self, who: False)


def culprit_forgotten(patch: Patch) -> None:
    """Who was on trial when its process died is a suspect like any other."""
    real = CrashSuspects.__init__

    def init(self: CrashSuspects, *arguments: object) -> None:
        real(self, *arguments)  # type: ignore[arg-type]
        self.culprit = None

    patch.setattr(CrashSuspects, "__init__", init)


def checkpoint_unread(patch: Patch) -> None:
    """A successor doesn't read the checkpoint that the map names."""
    patch.setattr(World, "checkpoint", lambda self, named: None)
    patch.setattr(World, "more", lambda self, *_: None)


def aborted_is_stored(patch: Patch) -> None:
    """Commits count from a checkpoint whose transaction was aborted."""
    real = Checkpoints.answered

    def answered(self: Checkpoints, offset: int | None) -> None:
        named = self.named
        real(self, -1 if offset is None else offset)
        if offset is None:
            self.named = named

    patch.setattr(Checkpoints, "answered", answered)


def older_records_count(patch: Patch) -> None:
    """Of several records of the same origin all are delivered."""
    patch.setattr(Copies, "take_outdated", lambda self: [])


def originals_count(patch: Patch) -> None:
    """A message of main is delivered though a newer copy of it waits."""
    patch.setattr(Copies, "without", lambda self, records: records)


def forgotten_once_only(patch: Patch) -> None:
    """The next owner doesn't know that its predecessor began from a checkpoint."""
    real = Commits._encode
    patch.setattr(
        Commits, "_encode", lambda self, *said, clean, older: real(self, *said, clean=clean, older=False)
    )


def dead_lettered_without_a_checkpoint(patch: Patch) -> None:
    """A dead letter may be newer than the last checkpoint."""
    patch.setattr(commits, "any", lambda some: False, raising=False)


def kept_keys_freed(patch: Patch) -> None:
    """An inline lease of due messages frees all its keys, though a holder goes on with one of them."""
    real = RecordOutcomes.end_due
    patch.setattr(RecordOutcomes, "end_due", lambda self, keys, kept, *rest: real(self, keys, (), *rest))


def due_rest_turned_round(patch: Patch) -> None:
    """Due messages to which an inline lease didn't come go back the wrong way round."""
    real = RecordOutcomes.end_due
    patch.setattr(
        RecordOutcomes,
        "end_due",
        lambda self, keys, kept, acked, nacked, rest: real(
            self, keys, kept, acked, nacked, list(reversed(rest))
        ),
    )


def due_takes_all_of_main(patch: Patch) -> None:
    """Messages that wait in main go along with due messages, though an earlier message of their key waits or moves."""

    def take_main(self: Handout, key: bytes, entry: Entry | None, run: int) -> Taken:
        return Taken(key, self._queues.take_from(key, run, NEVER))

    patch.setattr(Handout, "_take_home", take_main)


def left_keys_go_on(patch: Patch) -> None:
    """Later messages of a key of which a message was nacked count as acked."""
    real = Partition._passed
    patch.setattr(Partition, "_passed", lambda self, event, now: real(self, event._replace(skipped=()), now))


MUTATIONS: list[tuple[Callable[[Patch], None], Plan, bool]] = [
    (kept_keys_freed, NACKS, False),
    (due_rest_turned_round, NACKS, False),
    (left_keys_go_on, NACKS, False),
    (not_up_to_the_high_watermark, NACKS, False),
    (before_it_is_due, NACKS, False),
    (old_commits_tell_of_now, DOUBTS, False),
    (clock_of_the_takeover, CLOCKS, False),
    (parked_keys_taken, NACKS, False),
    (keys_of_a_span_forgotten, NACKS, False),
    (key_freed_when_stored, NACKS, False),
    (unknown_is_aborted, NACKS, False),
    (source_finished_at_once, LATE, False),
    (no_checkpoints, LATE, True),
    (checkpoint_unread, CROWDED, True),
    (aborted_is_stored, replace(CROWDED, aborts=0.3), True),
    (trimmed_past_the_checkpoint, CROWDED, True),
    (trimmed_before_the_answer, CROWDED, True),
    (older_records_count, FORGOTTEN, False),
    (originals_count, FORGOTTEN, False),
    (forgotten_once_only, FORGOTTEN, False),
    (dead_lettered_without_a_checkpoint, FORGOTTEN, False),
    (started_unnoted, KILLER, False),
    (several_trials, KILLER, False),
    (culprit_forgotten, KILLER, False),
]


def tighten(patch: Patch) -> None:
    """A map of a few runs, checkpoints of several records, a backlog of a few messages."""
    patch.setattr(ack_map, "CAPACITY", ack_map.NOTED + 38)
    patch.setattr(retry_partition, "TRIM", 1)
    patch.setattr(commits, "split", partial(split, most=5))
    patch.setattr(retry_state, "BACKLOG", 2)
    patch.setattr(maintenance, "BACKLOG", 2)


@pytest.mark.parametrize("tight", [False, True])
@pytest.mark.parametrize("plan", [NACKS, LATE, LOOSE, PARKED, CROWDED, FORGOTTEN, DOUBTS, CLOCKS, KILLER])
def test_with_all_rules_nothing_breaks(plan: Plan, tight: bool, monkeypatch: Patch) -> None:
    if tight:
        tighten(monkeypatch)
    for seed in (*fixed(3), *of_the_day(2)):
        World(Random(seed), plan).run(600)


@pytest.mark.parametrize(
    ("mutation", "plan", "tight"), MUTATIONS, ids=lambda each: getattr(each, "__name__", "")
)
def test_each_rule_is_needed(
    mutation: Callable[[Patch], None], plan: Plan, tight: bool, monkeypatch: Patch
) -> None:
    if tight:
        tighten(monkeypatch)
    mutation(monkeypatch)
    for seed in range(120):  # the shyest mutation shows at seed 83
        try:
            World(Random(seed), plan).run(600)
        except Exception:
            return
    raise AssertionError("nobody noticed")


# A schedule that random schedules meet too rarely


def taken_over(stored: list[Stored], *, ordered: bool) -> Partition:
    """A partition whose retry partition was read to its end, and main not at all."""
    start = Found("t", TOPIC_ID, retry=LogStart(0, end=len(stored)))
    commit = CommitBoth(0, "", Commit(0, ""))
    partition = Partition(Start(P[0], 1, 1, commit, start), Rules(ordered), lambda: 0.5)
    partition.handle(RetryFetched(stored), 0.0)
    partition.handle(RetryCaughtUp(len(stored)), 0.0)
    partition.handle(Tick(), 0.0)
    partition.handle(CommitAnswered(True), 0.0)
    return partition


def parked(offset: int, origin: int, key: bytes | None) -> Stored:
    """A message that lies in the retry partition."""
    return Stored(1, offset, key, retry_headers(None, RetryInfo(TOPIC_ID, 0, origin, why=Why.BACKLOG)))


def begun(partition: Partition, limit: int) -> list[Lease]:
    """The messages that are handed out."""
    effects = partition.handle(Demand(limit, 1), 1.0)
    return [lease for effect in effects if isinstance(effect, Deliver) for lease in effect.leases]


def backlog_overtakes(patch: Patch) -> None:
    """The head of a key was with its callback when its owner died; its backlog had been moved."""
    partition = taken_over([parked(0, 5, b"a")], ordered=True)
    assert begun(partition, 9) == []
    partition.handle(Fetched([FakeBody(1, 3, b"a")]), 1.0)
    assert [lease.records[0].offset() for lease in begun(partition, 9)] == [3]


def main_overtakes(patch: Patch) -> None:
    """A key has messages in both logs, in turn, and the first of them is due."""
    partition = taken_over([parked(0, 1, b"a"), parked(1, 5, b"a")], ordered=True)
    partition.handle(Fetched([FakeBody(1, 3, b"a"), FakeBody(1, 7, b"a")]), 1.0)
    (effect,) = partition.handle(Demand(9, 9, inline=True), 1.0)
    assert isinstance(effect, Deliver)
    assert [record.offset() for record in effect.leases[0].records] == [1, 3]


@pytest.mark.parametrize(
    ("mutation", "scene"), [(not_read_past, backlog_overtakes), (due_takes_all_of_main, main_overtakes)]
)
def test_each_rule_is_needed_here(
    mutation: Callable[[Patch], None], scene: Callable[[Patch], None], monkeypatch: Patch
) -> None:
    scene(monkeypatch)
    mutation(monkeypatch)
    with pytest.raises((AssertionError, InvariantViolated)):
        scene(monkeypatch)
