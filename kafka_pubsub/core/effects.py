"""What the shell is to do. The core never acts itself."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from kafka_pubsub.model import Header

if TYPE_CHECKING:
    from kafka_pubsub.core.events import Record
    from kafka_pubsub.core.leases import Lease

__all__ = [
    "Announce",
    "Commit",
    "CommitBoth",
    "Deliver",
    "Effect",
    "News",
    "ReadBodies",
    "Relocate",
    "Relocation",
    "Restart",
    "Stale",
    "Stop",
    "Trim",
    "Withdraw",
]


class Deliver(NamedTuple):
    """Hand these leases to holders, in this order."""

    leases: Sequence[Lease]


class Commit(NamedTuple):
    """Store this position and ack map; answer with `CommitAnswered`. No second one before the answer."""

    offset: int
    metadata: str


class CommitBoth(NamedTuple):
    """The same with the retry partition's, in one request; accepted if both were."""

    offset: int
    metadata: str
    retry: Commit


class Relocation(NamedTuple):
    """A record to be written: key, value and timestamp as `record` has them."""

    record: Record
    headers: Sequence[Header]
    #: To the dead-letter topic, by its partitioner; else to the retry topic, same partition number.
    dead: bool = False


class Relocate(NamedTuple):
    """Store these records and this commit in one transaction; answer with `Relocated`.

    No other commit of the partition before the answer. The shell may put several partitions' in one transaction.
    """

    records: Sequence[Relocation]
    commit: CommitBoth


class ReadBodies(NamedTuple):
    """Read these offsets of the retry partition, lowest first; answer with one `Bodies`, though it may be partial."""

    offsets: Sequence[int]


class Trim(NamedTuple):
    """What lies below this offset of the retry partition isn't needed any more."""

    offset: int


class Restart(NamedTuple):
    """A transaction's outcome is unknown: end it, and begin a new ownership from what is committed then."""


class News(Enum):
    """What somebody should be told."""

    OUTAGE = "most deliveries fail: slowing to a probe"
    RECOVERED = "deliveries succeed again: going on at full speed"
    DEAD_LETTER = "dead-lettered"
    PARKED = "attempts used up: parked until released"
    BROKEN = "unreadable retry record"
    GONE = "a retry record is gone: retention or somebody has deleted it"
    REFUSED = "can't be relocated, will be tried again"


class Announce(NamedTuple):
    """Log it and count it."""

    news: News
    detail: str = ""


class Stop(NamedTuple):
    """Holders of these leases begin no further record; the ack of the current one still counts."""

    leases: Sequence[Lease]


class Withdraw(NamedTuple):
    """These leases are over: a later ack changes nothing (`StaleAck`)."""

    leases: Sequence[Lease]


class Stale(NamedTuple):
    """So many acks, nacks or extensions came too late and changed nothing."""

    verdicts: int


Effect = (
    Deliver
    | Commit
    | CommitBoth
    | Stop
    | Withdraw
    | Stale
    | Relocate
    | ReadBodies
    | Trim
    | Restart
    | Announce
)
