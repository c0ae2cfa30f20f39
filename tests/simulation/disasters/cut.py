"""A log loses its tail: a leader is elected that lacks the last records, and others take their offsets.

Theory. The cut happens while no process lives; the contract tests (`test_log_ends`) judge how a reader notices it.
Lost messages are no messages any more, and records at their offsets are others.

Promised then (docs/operations.md, "A log that lost its end")
  refused  when a finished or waiting message was lost, no message of the partition begins before
           somebody has called `recover`, and the stream ends with an error that says so
  counted  `recover` tells of each such log where the loss begins
  claims   afterwards, as ever, finished messages were acked or are dead letters: no existing message is skipped,
           but for messages written since, where going on from the end was asked for
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from kafka_pubsub.errors import FailedPrecondition
from kafka_pubsub.model import Committed, TopicPartition
from kafka_pubsub.subscribe.formats import ack_map
from kafka_pubsub.subscribe.partition.finished_runs import FinishedRuns
from kafka_pubsub.subscribe.partition.offsets import Offsets
from kafka_pubsub.subscribe.retry_topic.lost_tails import LostTail, Recovery
from kafka_pubsub.subscribe.takeover import paired_partitions as takeovers
from tests.simulation import variants
from tests.simulation.disaster import Disaster, end_all
from tests.simulation.ledger import promise
from tests.simulation.plan import Plan, PlanVariant
from tests.simulation.process import SESSION
from tests.simulation.retry_ledger import NOWHERE, RETRY
from tests.simulation.trouble import GROUP, TOPIC

if TYPE_CHECKING:
    from tests.simulation.world import SimulatedWorld

__all__ = ["DISASTER"]

Patch = pytest.MonkeyPatch

#: Turns of a process until it must have noticed.
TURNS = 60


def befall(world: SimulatedWorld) -> None:
    """All die, a log loses its tail and grows again, and an operator says where to go on."""
    place = TopicPartition(world.random.choice([TOPIC, RETRY]), world.random.randrange(world.partitions))
    if world.plan.grows or any(place.partition == number for number, _, _ in world._open):
        return
    end_all(world)
    with world.cluster.changed:
        forgotten = place not in world.cluster.group(GROUP).offsets
    if forgotten and place.topic == RETRY:  # the lost checkpoints were all that told of the end
        return
    end = _end(world, place)
    if end is None:
        return
    world.say(f"{place} loses its tail from {end} on")
    world.ledger.cut.add(place.partition)
    world.ledger.ever_cut.add(place.partition)
    lost, must = (_lose_main if place.topic == TOPIC else _lose_retry)(world, place.partition, end)
    world.cluster.lose_tail(place.topic, place.partition, end)
    for _ in range(world.random.choice([0, 1, 5, 20])):
        world.append(world.random.choice(world.plan.keys))
    if must:
        _refused(world, place.partition)
    _recover(world, place, end, lost, must=must)


def _end(world: SimulatedWorld, place: TopicPartition) -> int | None:
    """Where the log will end; None: nothing can be lost now."""
    log, number = world.cluster.log(place), place.partition
    low = log.start
    if (
        place.topic == TOPIC
    ):  # messages that wait in the retry topic are to be there, or two would have the same name
        beside = world.ledger.beside[number]
        waiting = (info.origin + 1 for info in beside.waiting(beside.stored[1], ()))
        skipped = world.ledger.logs[number].skipped  # under which leader these were written, nothing says
        low = max(low, world.starts[number], skipped, max(waiting, default=0))
    return world.random.randrange(low, log.end) if low < log.end else None


def _lose_main(world: SimulatedWorld, number: int, end: int) -> tuple[Collection[int], bool]:
    """The books after the cut: the messages lost, and whether one of them was called finished."""
    ledger = world.ledger
    log, beside = ledger.logs[number], ledger.beside[number]
    lost = {at for at in log.keys if at >= end}
    must = bool(lost & log.durable) or (beside.stored[0].offset or 0) > end
    log.keys = {at: key for at, key in log.keys.items() if at < end}
    log.order = [at for at in log.order if at < end]
    log.of_key = {key: left for key, some in log.of_key.items() if (left := [at for at in some if at < end])}
    for some in (log.gone, log.delivered, log.acked, log.durable, log.before, beside.dead):
        some.difference_update(lost)
    for book in (ledger.bodies[number], ledger.poison[number], beside.begun):
        for at in lost & book.keys():
            del book[at]
    log.lost |= lost
    beside.through.clear()
    beside.foreign |= {at for at, info in beside.said.items() if info is not None and info.origin >= end}
    return lost, must


def _lose_retry(world: SimulatedWorld, number: int, end: int) -> tuple[Collection[int], bool]:
    """The same of a retry partition: the waiting messages that were lost, and whether any of them was read.

    The owner's last records, if they weren't read back in time for another commit, are lost without a word.
    """
    log, beside = world.ledger.logs[number], world.ledger.beside[number]
    stored, tail = beside.stored[1], range(end, beside.log.end)
    world.rubbish_written -= beside.rubbish(stored, ()) - beside.rubbish(stored, tail)
    lost = {info.origin for info in beside.waiting(stored, ()) if info.origin not in log.durable}
    beside.said = {at: info for at, info in beside.said.items() if at < end}
    beside.foreign = {at for at in beside.foreign if at < end}
    kept = {info.origin for info in beside.waiting(stored, tail)}
    told = [stored.offset or 0]
    maps = [said for said in map(beside.map, beside.stored) if said is not None]
    told += [said.checkpoint.offset + 1 for said in maps if said.checkpoint is not None]
    if (said := beside.map(stored)) is not None:
        told.append(said.read.offset)
    return lost - kept, max(told) > end


def _refused(world: SimulatedWorld, number: int) -> None:
    """Whoever takes the partition on is told, and gets nothing of it."""
    for _ in range(TURNS):
        if not world.processes:
            world.join()
        try:
            world.time_passes(0.5)
            for process in list(world.processes):
                world.act(process, process.fetcher)
                world.act(process, process.runner)
        except FailedPrecondition as error:
            promise("lost its end" in str(error), f"refused: {error}")
            world.say(str(error))
            break
    else:
        promise(False, f"refused: nothing is told of what {number} has lost")
    while world.processes:
        world.crash()
    world.time_passes(SESSION + 1)


def _recover(
    world: SimulatedWorld, place: TopicPartition, end: int, lost: Collection[int], *, must: bool
) -> None:
    """An operator says where to go on."""
    number = place.partition
    start = world.random.choice(["oldest", "end"])
    found = Recovery(world.backend, world.record()).run("oldest" if start == "oldest" else "end")
    world.say(f"an operator goes on from the {start}: {found}")
    told = [each for each in found if (each.topic, each.partition) == place]
    promise(bool(told) or not must, f"counted: nothing is told of {place}, which has lost what was read")
    promise(
        [each for each in found if each not in told] == [],
        f"counted: only {place} has lost something: {found}",
    )
    _go_on(world, number, place, end, lost, told)


def _go_on(
    world: SimulatedWorld,
    number: int,
    place: TopicPartition,
    end: int,
    lost: Collection[int],
    told: list[LostTail],
) -> None:
    ledger = world.ledger
    log, beside = ledger.logs[number], ledger.beside[number]
    with world.cluster.changed:
        stored = world.cluster.group(GROUP).offsets
        main, retry = (stored.get(at, NOWHERE) for at in beside.places)
    for each in told:
        promise(each.start <= end, f"counted: {each} begins behind {end}")
        if place.topic == TOPIC and each.skipped:
            log.gone |= {at for at in log.keys if at >= each.start}
            log.skipped = each.start + each.skipped
    if place.topic == RETRY:
        log.gone |= set(lost)
    ledger.cut.discard(number)
    ledger.goes_on_from(number, main, retry)


def cutting(plan: Plan) -> Plan:
    """Logs lose their tails often; much is relocated."""
    return DISASTER.often(replace(variants.failing(plan), grows=0), 1.5)


def losses_unrefused(patch: Patch) -> None:
    """A new owner of a partition doesn't mind the losses of its logs."""
    patch.setattr(takeovers, "refuse", lambda name, findings: None)


def epoch_unsaid(patch: Patch) -> None:
    """A commit says how far a log was read, and not under which leader."""
    real = ack_map._read
    patch.setattr(ack_map, "_read", lambda read, position: (real(read, position)[0], 0))


def read_unsaid(patch: Patch) -> None:
    """A commit doesn't say how far a log was read."""
    patch.setattr(ack_map, "_read", lambda read, position: (0, 0))


def end_forgets_all(patch: Patch) -> None:
    """An owner that goes on from the end of a log leaves unfinished messages below the loss."""
    real = Recovery._kept

    def kept(self: Recovery, *arguments: Any, **options: Any) -> Committed:
        since = arguments[4]
        return real(self, *arguments, **options) if since[0] == since[1] else Committed(since[1], "")

    patch.setattr(Recovery, "_kept", kept)


def lost_stays_finished(patch: Patch) -> None:
    """After a loss the commit stays unchanged."""
    patch.setattr(Recovery, "_kept", lambda self, fetch, place, stored, at, since, older=False: stored)


def epoch_of_markers_unsaid(patch: Patch) -> None:
    """The log behind the last record counts as read, and nothing says under which leader."""
    for finished_runs in (Offsets, FinishedRuns):
        real = finished_runs.advance
        patch.setattr(
            finished_runs, "advance", lambda self, position, epoch=None, real=real: real(self, position)
        )


MUTATIONS: Mapping[Callable[[Patch], None], PlanVariant] = {
    losses_unrefused: cutting,
    epoch_unsaid: cutting,
    read_unsaid: cutting,
    end_forgets_all: cutting,
    lost_stays_finished: cutting,
    epoch_of_markers_unsaid: cutting,
}

DISASTER = Disaster("cut", 0.3, 0.2, befall, MUTATIONS)
