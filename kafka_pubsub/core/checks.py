"""The promises of a partition that no part of it can see alone; each part checks its own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from kafka_pubsub.errors import InvariantViolated

if TYPE_CHECKING:
    from kafka_pubsub.core.partition import Partition

__all__ = ["check"]


def check(partition: Partition) -> None:
    """Raises `InvariantViolated` if a promise is broken."""
    partition.offsets.check()
    partition.queues.check()
    partition.leases.check()
    partition.commits.check()
    _check_holders(partition)
    if partition.open:
        _check_places(
            partition,
            [record.offset() for record in partition.queues.waiting()],
            [record.offset() for lease in partition.leases.active for record in lease.records[lease.done :]],
            [record.offset() for record, _ in partition.waiting.records()],
        )


def _check_holders(partition: Partition) -> None:
    queues = partition.queues
    for lease in partition.leases.active:
        if lease.key is not None and lease.key not in queues.blocked:
            raise InvariantViolated(f"I1: the key of {lease!r} isn't blocked")
        if lease.key is None and any(record.key() in queues.queues for record in lease.records):
            raise InvariantViolated(f"I1: a key of the inline {lease!r} is in the queues")


def _check_places(partition: Partition, *places: Iterable[int]) -> None:
    held = sorted(offset for place in places for offset in place)
    if held != list(partition.offsets.unfinished):
        raise InvariantViolated("I3: an unfinished record is in no place, or in two")
