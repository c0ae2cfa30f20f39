"""The broker forgets the group's positions: all processes have died, and stayed away for long.

Promised then (docs/invariants.md, I5 and I7)
  claims   messages that the newest checkpoint in the retry partition calls finished stay finished, and so do dead
  letters minutes  a message that was finished for longer than the time between two checkpoints, and some more, is in a
checkpoint All else of the ledger goes on: the order of each key, attempts, due times, and that no dead letter is
written twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from kafka_pubsub.model import Committed, TopicPartition
from kafka_pubsub.subscribe.formats.checkpoint import Checkpoint, Named
from kafka_pubsub.subscribe.partition import checkpoint_schedule, commits
from kafka_pubsub.subscribe.partition.checkpoint_schedule import Checkpoints
from kafka_pubsub.subscribe.partition.commits import Commits
from kafka_pubsub.subscribe.partition.copies import Copies
from kafka_pubsub.subscribe.partition.retry_state import RetryState
from kafka_pubsub.subscribe.retry_topic.checkpoint_reader import stored_by
from kafka_pubsub.subscribe.retry_topic.lost_tails import Recovery
from tests.simulation import variants
from tests.simulation.disaster import Disaster, end_all
from tests.simulation.ledger import promise
from tests.simulation.plan import Plan, PlanVariant
from tests.simulation.retry import SteppedRelocating
from tests.simulation.trouble import GROUP

if TYPE_CHECKING:
    from tests.simulation.world import SimulatedWorld

__all__ = ["DISASTER"]

Patch = pytest.MonkeyPatch
Ranges = Mapping[TopicPartition, tuple[int, int]]
Found = Mapping[TopicPartition, tuple[Named, Checkpoint]]

#: Seconds that a checkpoint may be late: the schedule has to choose its steps, and time jumps.
SLACK = 60.0


def befall(world: SimulatedWorld) -> None:
    """All die, and the group's offsets are forgotten."""
    died, troubled = world.now(), _troubled(world)
    end_all(world)
    world.say("the broker forgets what the group has committed")
    world.cluster.forget_offsets(GROUP)
    ledger, record = world.ledger, world.record()
    assert record.retry_topic is not None
    copies = record.positions, record.retry_topic.positions
    # A loss that came after the newest checkpoint is found once more, so an operator says again where to go on.
    Recovery(world.backend, record).run("oldest")
    with world.cluster.changed:
        recovered = dict(world.cluster.group(GROUP).offsets)
    for number, (log, beside) in enumerate(zip(ledger.logs, ledger.beside, strict=True)):
        known, finished = set(log.durable), dict(log.finished_at)
        main, retry = (copy.get(number, 0) for copy in copies)
        stored = Committed(main, ""), Committed(retry, "")
        if (found := beside.newest_checkpoint(ledger.undecided(number))) is not None:
            named, told = found
            stored = (
                stored_by(named, told.main, max(told.main.position, main)),
                stored_by(named, told.retry, max(told.retry.position, retry)),
            )
        main_at, retry_at = (
            recovered.get(place, each) for place, each in zip(beside.places, stored, strict=True)
        )
        stored = main_at, retry_at
        rubbish = beside.rubbish(beside.stored[1], ())
        ledger.goes_on_from(number, *stored)
        if (
            number in ledger.ever_cut
        ):  # the note that a record is with the dead letters may be lost: the record goes there again
            world.rubbish_written += beside.rubbish(beside.stored[1], ()) - rubbish
        again = known - log.durable
        world.say(f"{number} goes on from {[each.offset for each in stored]}; {sorted(again)} come again")
        limit = died - checkpoint_schedule.EVERY - SLACK
        if max(troubled, beside.owned_since) < limit:  # else its owner couldn't have written one
            old = sorted(at for at in again if finished[at] < limit)
            promise(not old, f"minutes: {old} of {number} were finished long ago, and are in no checkpoint")


def _troubled(world: SimulatedWorld) -> float:
    """When something went wrong last between a process and the log."""
    plan, now = world.plan, world.now()
    if plan.refused or plan.answer_lost or plan.retry.late_commits:
        return now
    times = [max(each.stalled_until, each.retry_side.failed_at) for each in world.processes]
    return now if any(each.retry_side.busy for each in world.processes) else max(times, default=now)


def forgetting(plan: Plan) -> Plan:
    """Offsets are forgotten often; the retry topic is written to all the time."""
    return DISASTER.often(variants.failing(plan), 1.5)


def crowded(plan: Plan) -> Plan:
    """The same with maps of a few runs, so that there are many checkpoints."""
    return DISASTER.often(variants.crowded(plan), 1.5)


def not_dead_lettered(plan: Plan) -> Plan:
    """The same now and then, so that messages become dead letters before."""
    plan = replace(variants.poisoned(plan), processes=1, partitions=1, steps=500, slow=0.0)
    plan = replace(plan, actions={**plan.actions, "crash": 0.0, "evict": 0.0, "mover": 60.0, "cut": 0.0})
    return DISASTER.often(plan, 0.5)


def lasting(plan: Plan) -> Plan:
    """An owner lives for long without any trouble before its offsets are forgotten."""
    plan = replace(
        variants.failing(plan),
        processes=1,
        partitions=1,
        capacity=650,
        steps=400,
        refused=0.0,
        answer_lost=0.0,
    )
    retry = replace(
        plan.retry, dies=0.0, broken_steps=0.0, unknown=0.0, refused=0.0, late_markers=0.0, late_commits=0.0
    )
    never = dict.fromkeys(
        ("stall", "unwritable", "crash", "evict", "leave", "usurp", "stranger", "transaction"), 0.0
    )
    plan = replace(plan, retry=retry, actions={**plan.actions, **never, "time": 20.0, "mover": 60.0})
    return DISASTER.often(plan, 0.5)


def checkpoints_undated(patch: Patch) -> None:
    """A checkpoint is written when the metadata is full, and not because time has passed."""
    patch.setattr(Checkpoints, "due_at", lambda self: None)


def newest_unsought(patch: Patch) -> None:
    """Whose offsets are forgotten goes on from the catalog's copy; no checkpoint is looked for."""
    patch.setattr(SteppedRelocating, "newest", lambda self, ranges: {})


def older_one_taken(patch: Patch) -> None:
    """Of a retry partition's checkpoints the second newest counts."""
    real = SteppedRelocating.newest

    def before(self: SteppedRelocating, ranges: Ranges) -> Found:
        last = real(self, ranges)
        ends = {
            place: (low, last[place][0].offset if place in last else end)
            for place, (low, end) in ranges.items()
        }
        return {**last, **real(self, ends)}

    patch.setattr(SteppedRelocating, "newest", before)


def copies_delivered(patch: Patch) -> None:
    """A message of main that waits in the retry partition, too, comes from both."""
    patch.setattr(Copies, "without", lambda self, records: records)


def outdated_counts(patch: Patch) -> None:
    """Of several records of the same origin each counts."""
    patch.setattr(Copies, "take_outdated", lambda self: [])


def copies_go_on(patch: Patch) -> None:
    """A waiting message without a key in the retry partition begins before main has been read up to its copy there."""
    patch.setattr(RetryState, "loose_may_go", property(lambda self: self.caught_up))


def copies_unreported(patch: Patch) -> None:
    """The next owner isn't told that main's messages may have copies."""
    real = Commits._encode
    patch.setattr(
        Commits, "_encode", lambda self, *said, clean, older: real(self, *said, clean=clean, older=False)
    )


def dead_letter_without_checkpoint(patch: Patch) -> None:
    """A dead letter is stored with an ordinary commit, which the broker may forget."""
    patch.setattr(commits, "_buries", lambda records: False)


MUTATIONS: Mapping[Callable[[Patch], None], PlanVariant] = {
    checkpoints_undated: lasting,
    newest_unsought: crowded,
    older_one_taken: crowded,
    copies_delivered: forgetting,
    outdated_counts: forgetting,
    copies_go_on: forgetting,
    copies_unreported: forgetting,
    dead_letter_without_checkpoint: not_dead_lettered,
}

DISASTER = Disaster("forget", 0.3, 0.2, befall, MUTATIONS)
