"""The core's requests to the client. The core never acts itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from kafka_pubsub.log.records import Record
from kafka_pubsub.model import Header

if TYPE_CHECKING:
    from kafka_pubsub.log.records import Record
    from kafka_pubsub.subscribe.formats.checkpoint import Part
    from kafka_pubsub.subscribe.partition.leases import Lease

__all__ = [
    "Announce",
    "Commit",
    "CommitBoth",
    "Deliver",
    "Durable",
    "Effect",
    "MovedRecord",
    "News",
    "ReadBodies",
    "Restart",
    "Stale",
    "Stop",
    "StoreMoves",
    "Trim",
    "Undone",
    "Unstored",
    "Withdraw",
    "WriteDeadLetters",
]


class Deliver(NamedTuple):
    """Give these leases to lease runners, in this order; `inline`: the thread that asked takes them itself."""

    leases: Sequence[Lease]
    inline: bool = False


class Commit(NamedTuple):
    """A position of a log and its metadata."""

    offset: int
    metadata: str
    #: The leader epoch of the last record read; None: unknown for this position.
    epoch: int | None = None


class CommitBoth(NamedTuple):
    """Store both partitions' positions and metadata in a single request; answer with `CommitAnswered`: both, or not.

    No second commit follows before the answer.
    """

    offset: int
    metadata: str
    retry: Commit
    epoch: int | None = None


class MovedRecord(NamedTuple):
    """A record to be written: key, value and timestamp as `record` has them."""

    record: Record
    headers: Sequence[Header]
    #: True: to the dead-letter topic, by its partitioner; else to the retry topic, same partition number.
    dead: bool = False


class StoreMoves(NamedTuple):
    """Store these records and this commit in a single transaction; answer with `MovesAnswered`.

    No other commit of the partition follows before the answer. The client may put several partitions' into one
    transaction. For dead letters: store the commit in the transaction in which they were written (`WriteDeadLetters`),
    and the parts behind them. `parts` of a checkpoint are written behind the records, with the headers `said`; then
    `named(offset)` is committed, with the offset of the first part, and `commit` is only a forecast.
    """

    records: Sequence[MovedRecord]
    commit: CommitBoth
    parts: Sequence[Part] = ()
    said: Sequence[Header] = ()
    named: Callable[[int], CommitBoth] | None = None


class WriteDeadLetters(NamedTuple):
    """Write these dead letters in a transaction of their own, and leave it open; answer with `Written`.

    No position goes with them yet, so no commit of the partition waits for it. After `Written` a `StoreMoves` of the
    same records completes the transaction. If that doesn't come within seconds, the transaction is aborted.
    """

    records: Sequence[MovedRecord]


class ReadBodies(NamedTuple):
    """Read these offsets of the retry partition, lowest first; answer with a single `Bodies`, even if it is partial."""

    offsets: Sequence[int]


class Trim(NamedTuple):
    """Delete the records below this offset of the retry partition: they aren't needed any more."""

    offset: int


class Restart(NamedTuple):
    """End a transaction with an unknown outcome, and begin a new ownership from the positions committed then."""


class News(Enum):
    """News for the user."""

    OUTAGE = "most deliveries fail: slowing to a probe"
    RECOVERED = "deliveries succeed again: going on at full speed"
    DEAD_LETTER = "dead-lettered"
    REJECTED = "dead-lettered by its callback"
    PARKED = "attempts used up: parked until released"
    BROKEN = "unreadable retry record"
    GONE = "a retry record is gone: retention or another client has deleted it"
    REFUSED = "can't be moved to the retry topic, will be tried again"
    UNBURIED = "the dead-letter topic doesn't take it, will be tried again"


class Announce(NamedTuple):
    """Log and count this news. `message`: the record of the message concerned; None: none is."""

    news: News
    detail: str = ""
    message: Record | None = None


class Stop(NamedTuple):
    """Stop these leases: their lease runners begin no further record; the ack of the current one still counts."""

    leases: Sequence[Lease]


class Withdraw(NamedTuple):
    """Treat these leases as over: a later ack changes nothing (`StaleAck`)."""

    leases: Sequence[Lease]


class Durable(NamedTuple):
    """Report to these waiters (`Ask.waiter`) that their acks are in the log."""

    waiters: Sequence[object]


class Unstored(Enum):
    """Why an ack that a caller waits for isn't known to be in the log."""

    #: Its lease was over when the ack came, which changed nothing.
    LATE = "late"
    #: The partition was given up before the ack was in any commit: the message is delivered again.
    GONE = "gone"
    #: The partition was given up while a commit with the ack was unanswered.
    UNKNOWN = "unknown"
    #: No commit with the ack was accepted for a long time. The ack stays noted, and later commits hold it.
    UNANSWERED = "unanswered"


class Undone(NamedTuple):
    """Report to these waiters that their acks aren't known to be in the log."""

    waiters: Sequence[object]
    why: Unstored


class Stale(NamedTuple):
    """Count so many acks, nacks or extensions that came too late and changed nothing."""

    outcomes: int


Effect = (
    Deliver
    | CommitBoth
    | Stop
    | Withdraw
    | Stale
    | Durable
    | Undone
    | StoreMoves
    | WriteDeadLetters
    | ReadBodies
    | Trim
    | Restart
    | Announce
)
