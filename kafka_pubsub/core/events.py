"""What can happen to a partition. One event is one batch: a fetch, a set of releases, never a single message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from kafka_pubsub.core.delivery.leases import Lease, Settlement
from kafka_pubsub.core.records import Record
from kafka_pubsub.model import Ending, StoredRecord

__all__ = [
    "Ask",
    "Awaited",
    "Bodies",
    "CommitAnswered",
    "Demand",
    "Ended",
    "Event",
    "Extended",
    "Fetched",
    "LeaseOutcome",
    "LeaseReport",
    "LeasesReported",
    "Lost",
    "MovesAnswered",
    "Nacked",
    "Passed",
    "Progress",
    "Progressed",
    "RetryCaughtUp",
    "RetryFetched",
    "Returned",
    "Revoked",
    "Settled",
    "Tick",
    "Written",
]


class LeaseOutcome(IntEnum):
    """How a lease runner left the record at which it stopped."""

    FINISHED = 0  #: it took every record of the lease, and all are acked
    NACKED = 1  #: nacked, or its callback raised
    KEPT = 2  #: the callback returned without a word: leased until its deadline
    UNTOUCHED = 3  #: the lease runner was told to stop before it began the record


class Fetched(NamedTuple):
    """Records read from the log, in order of offset.

    `inline`: the thread that read them can take them itself, at once; never said while an inline lease is open.
    `epoch`: the leader epoch of the last, if it is known.
    """

    records: Sequence[Record]
    inline: bool = False
    epoch: int | None = None


class LeaseReport(NamedTuple):
    """A lease runner lets go of a lease: its first `done` records are acked, `verdict` is about the next one."""

    lease: Lease
    done: int
    verdict: LeaseOutcome
    delay: float | None = None
    #: What the callback raised, or was dealing with when it nacked, "Class: text".
    error: str = ""


class LeasesReported(NamedTuple):
    """Lease runners let go of leases."""

    releases: Sequence[LeaseReport]


#: A record that was nacked inline, after how many seconds it is to come again (None: by the backoff), and the error.
Nacked = tuple[Record, float | None, str]


class Passed(NamedTuple):
    """A lease runner is through with the first `reached` records of an inline lease, and will begin no other.

    `left`: releases of leases of their own for those that were kept. `skipped`: records that it passed over because an
    earlier one of their key was left. `current`: the record after the first `reached` is with its callback. `nacked`:
    what was nacked; no lease is made of it.
    """

    lease: Lease
    reached: int
    left: Sequence[LeaseReport] = ()
    skipped: Sequence[Record] = ()
    current: bool = False
    nacked: Sequence[Nacked] = ()


class Progress(NamedTuple):
    """A lease runner is on its way: `done` records are acked, the next has been with its callback since `started`."""

    lease: Lease
    done: int
    started: float


class Progressed(NamedTuple):
    """Lease runners are on their way."""

    steps: Sequence[Progress]


class Settled(NamedTuple):
    """Records were acked or nacked after, or while, their callbacks returned."""

    settlements: Sequence[Settlement]


class Ask(NamedTuple):
    """A record was acked under this lease, and `waiter` is to be told when that is durable, or that it isn't."""

    lease: Lease
    record: Record
    waiter: object


class Awaited(NamedTuple):
    """Records were acked, and the callers wait for that to be durable; the callbacks may still run.

    Said before the release of the same lease, and before the inline run that it happened in is told of.
    """

    asks: Sequence[Ask]


class Extended(NamedTuple):
    """The deadline of the lease's record number `done` was moved to `seconds` from now."""

    lease: Lease
    done: int
    seconds: float


class Demand(NamedTuple):
    """The shell can take up to `limit` leases of up to `run` records each.

    `spread`: runs of more than one record only if a single key is ready. `inline`: the thread that asks can take an
    inline lease of what is due itself, at once; never said while an inline lease is open.
    """

    limit: int
    run: int
    spread: bool = False
    inline: bool = False


class Ended(NamedTuple):
    """Callbacks of an earlier ownership, which held these keys back, have ended."""

    keys: Sequence[bytes]


class Tick(NamedTuple):
    """Time has passed. `stuffed`: the partition holds as much as it may, so nothing more of it is read.

    `taken`: the stream has started as many messages as it may, so no trial begins. `wall`: the wall clock less the
    core's clock, in seconds; None: as before. `closing`: the stream ends, so what has finished goes into a checkpoint.
    """

    stuffed: bool = False
    taken: bool = False
    wall: float | None = None
    closing: bool = False


class CommitAnswered(NamedTuple):
    """The log answered the commit in flight."""

    accepted: bool


class MovesAnswered(NamedTuple):
    """The log answered the transaction in flight.

    `refused`: of an aborted one, the numbers of the records that can't be written at all now, and why. `checkpoint`:
    where the first part of its checkpoint was stored, if it had one.
    """

    ending: Ending
    refused: Mapping[int, str] = {}
    checkpoint: int | None = None


class Written(NamedTuple):
    """The answer to `WriteDeadLetters`: the log has taken all of the dead letters, or the transaction was aborted.

    `refused`: as in `MovesAnswered`; `reason`: why it was aborted, for a person.
    """

    taken: bool
    refused: Mapping[int, str] = {}
    reason: str = ""


class RetryFetched(NamedTuple):
    """Records read from the retry partition, in order of offset; never while an inline lease is open."""

    records: Sequence[StoredRecord]
    epoch: int | None = None


class RetryCaughtUp(NamedTuple):
    """The retry partition was read up to the high watermark that it had after `committed()` had answered.

    `position`: the reader's own; what it hasn't returned below that will never come.
    """

    position: int
    epoch: int | None = None


class ReadUpTo(NamedTuple):
    """Both logs were read up to here: what wasn't received below will never come (markers, aborted records).

    The epochs are those of the last record or marker below, where they are known.
    """

    position: int
    retry: int
    epoch: int | None = None
    retry_epoch: int | None = None


class Bodies(NamedTuple):
    """The answer to `ReadBodies`: `missing` offsets have no record; what is in neither is asked for again."""

    records: Sequence[StoredRecord]
    missing: Sequence[int] = ()


class Revoked(NamedTuple):
    """The partition goes to another member, or comes back to us. `closing`: it doesn't come back."""

    closing: bool = False


class Returned(NamedTuple):
    """It came back, and the log holds exactly what we wrote last."""


class Lost(NamedTuple):
    """It isn't ours any more, or another member wrote to it since."""


Event = (
    Fetched
    | Passed
    | LeasesReported
    | Progressed
    | Settled
    | Awaited
    | Extended
    | Demand
    | Ended
    | Tick
    | CommitAnswered
    | MovesAnswered
    | Written
    | RetryFetched
    | RetryCaughtUp
    | ReadUpTo
    | Bodies
    | Revoked
    | Returned
    | Lost
)
