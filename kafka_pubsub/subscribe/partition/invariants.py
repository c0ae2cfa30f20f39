"""The invariants of a partition that span several of its parts; each part checks its own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from kafka_pubsub.errors import InvariantViolated
from kafka_pubsub.log.records import Record
from kafka_pubsub.subscribe.formats.record import RetryRecord
from kafka_pubsub.subscribe.partition.durable_acks import Durability
from kafka_pubsub.subscribe.partition.key_queues import KeyQueues
from kafka_pubsub.subscribe.partition.leases import Leases
from kafka_pubsub.subscribe.partition.offsets import Offsets
from kafka_pubsub.subscribe.partition.retry_partition import RetryPartition
from kafka_pubsub.subscribe.partition.retry_state import RetryState

__all__ = ["Parts", "check"]

#: Records of a retry partition that a check looks at.
_ALL = 1_000_000


class Parts(NamedTuple):
    """The parts of a partition (`partition.Partition`)."""

    open: bool
    offsets: Offsets
    queues: KeyQueues
    leases: Leases
    acks: Durability
    retry_partition: RetryPartition


def check(partition: Parts) -> None:
    """Raises `InvariantViolated` if an invariant is broken."""
    partition.offsets.check()
    partition.queues.check()
    partition.leases.check()
    partition.acks.check()
    _check_lease_runners(partition)
    retries = partition.retry_partition.retries
    _check_parts(retries)
    if partition.open:
        _check_retry_places(partition, retries)
        _check_parked(partition, retries)
        moves = (*retries.moves.waiting, *retries.moves.unanswered)
        _check_places(
            partition.offsets.unfinished,
            [record.offset() for record in partition.queues.waiting()],
            [record.offset() for record in _handed(partition) if not isinstance(record, RetryRecord)],
            [move.origin for move in moves if move.source is None],
        )


def _check_parts(retries: RetryState) -> None:
    for part in (retries.finished_runs, retries.parking, retries.bodies, retries.outage):
        part.check()
    for side in (retries.home, retries.retry):
        side.suspects.check()


def _check_lease_runners(partition: Parts) -> None:
    queues = partition.queues
    for lease in partition.leases.active:
        if lease.key is not None and lease.key not in queues.blocked:
            raise InvariantViolated(f"I1: the key of {lease!r} isn't blocked")
    inline = partition.leases.inline_lease
    if inline is None:
        return
    if inline.keys:
        if any(key is not None and key not in queues.blocked for key in inline.keys):
            raise InvariantViolated(f"I1: a key of the inline {inline!r} isn't held")
        return
    keys = {record.key() for record in inline.records} - {None}
    if not keys.isdisjoint(queues.queues) or not keys.isdisjoint(queues.parked):
        raise InvariantViolated(f"I1: a key of the inline {inline!r} is in the queues, or parked")


def _check_places(unfinished: Iterable[int], *places: Iterable[int]) -> None:
    held = sorted(offset for place in places for offset in place)
    if held != list(unfinished):
        raise InvariantViolated(f"I3: {held} have places, {list(unfinished)} are unfinished")


def _handed(partition: Parts) -> list[Record]:
    """Returns the records that lease runners have."""
    return [record for lease in partition.leases.active for record in lease.records[lease.done :]]


def _check_retry_places(partition: Parts, retries: RetryState) -> None:
    moves = (*retries.moves.waiting, *retries.moves.unanswered)
    unfinished, lines = retries.finished_runs.lowest(_ALL), retries.parking.lines
    _check_places(
        unfinished,
        [entry.offset for key in lines for entry in lines.entries(key)],
        [entry.offset for entry in retries.parking.loose],
        [entry.offset for entry, _ in retries.loose],
        retries.loose_wanted,
        [record.retry_offset for record in _handed(partition) if isinstance(record, RetryRecord)],
        [move.source for move in moves if move.source is not None],
        retries.unreadable.keys(),
        [letter.offset for letter in (*retries.dead_letters.waiting, *retries.dead_letters.unanswered)],
        retries.releasing,
    )


def _check_parked(partition: Parts, retries: RetryState) -> None:
    """Checks that records of home behind a parked key are noted as its backlog."""
    queues, parking = partition.queues.queues, retries.parking
    for key in queues.keys() & parking.lines.keys():
        noted = key in parking.backlogged or not retries.caught_up
        if queues[key] and not noted:
            raise InvariantViolated(f"I6: nothing would move what waits behind the parked key {key!r}")
    if not parking.backlogged.keys() <= parking.lines.keys():
        raise InvariantViolated("a key has a backlog behind it, and isn't parked")
