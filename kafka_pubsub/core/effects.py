"""What the shell is to do. The core never acts itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kafka_pubsub.core.leases import Lease

__all__ = ["Commit", "Deliver", "Effect", "Stale", "Stop", "Withdraw"]


class Deliver(NamedTuple):
    """Hand these leases to holders, in this order."""

    leases: Sequence[Lease]


class Commit(NamedTuple):
    """Store this position and ack map; answer with `CommitAnswered`. No second one before the answer."""

    offset: int
    metadata: str


class Stop(NamedTuple):
    """Holders of these leases begin no further record; the ack of the current one still counts."""

    leases: Sequence[Lease]


class Withdraw(NamedTuple):
    """These leases are over: a later ack changes nothing (`StaleAck`)."""

    leases: Sequence[Lease]


class Stale(NamedTuple):
    """So many acks, nacks or extensions came too late and changed nothing."""

    verdicts: int


Effect = Deliver | Commit | Stop | Withdraw | Stale
