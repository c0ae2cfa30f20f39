"""The events of a partition. An event is a batch: a fetch, a set of lease reports, never a single message."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from kafka_pubsub.log.records import Record
from kafka_pubsub.model import Ending, StoredRecord
from kafka_pubsub.subscribe.partition.leases import Lease, Settlement

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
    "Followed",
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

    FINISHED = 0  #: every record of the lease was taken and acked
    NACKED = 1  #: nacked, or its callback raised
    KEPT = 2  #: the callback neither acked nor nacked: leased until its deadline
    UNTOUCHED = 3  #: the lease runner was stopped before it began the record


class Fetched(NamedTuple):
    """Records read from the log, in order of offset.

    `inline`: the thread that read them can take them itself, at once; never True while an inline lease is open.
    `epoch`: the leader epoch of the last, if known.
    """

    records: Sequence[Record]
    inline: bool = False
    epoch: int | None = None
    #: Offsets of records that may wait for others of their key in other lanes (`lanes.followers`).
    after: Collection[int] = ()


class Followed(NamedTuple):
    """The first messages of these keys may wait no longer for other lanes."""

    keys: Sequence[bytes]


class LeaseReport(NamedTuple):
    """A lease runner's last report: the first `done` records are acked, `outcome` is about the next record."""

    lease: Lease
    done: int
    outcome: LeaseOutcome
    delay: float | None = None
    #: The error that the callback raised, or was handling when it nacked, as "Class: text".
    error: str = ""


class LeasesReported(NamedTuple):
    """Lease runners let go of their leases."""

    releases: Sequence[LeaseReport]


#: A record that was nacked inline, the seconds after which it is redelivered (None: by the backoff), and the error.
Nacked = tuple[Record, float | None, str]


class Passed(NamedTuple):
    """A lease runner has taken the first `reached` records of an inline lease, and begins no other.

    `left`: reports on leases of their own for kept records. `skipped`: records that were passed over because an
    earlier record of their key was left. `current`: the record after the first `reached` is with its callback.
    `nacked`:
    the records that were nacked; no lease is made of them.
    """

    lease: Lease
    reached: int
    left: Sequence[LeaseReport] = ()
    skipped: Sequence[Record] = ()
    current: bool = False
    nacked: Sequence[Nacked] = ()


class Progress(NamedTuple):
    """A lease runner's progress: `done` records are acked, the next has been with its callback since `started`."""

    lease: Lease
    done: int
    started: float


class Progressed(NamedTuple):
    """Lease runners have made progress."""

    steps: Sequence[Progress]


class Settled(NamedTuple):
    """Records were acked or nacked after, or while, their callbacks returned."""

    settlements: Sequence[Settlement]


class Ask(NamedTuple):
    """A record was acked under this lease, and `waiter` hears whether that has become durable."""

    lease: Lease
    record: Record
    waiter: object


class Awaited(NamedTuple):
    """Records were acked, and the callers wait for that to be durable; the callbacks may still run.

    Comes before the report on the same lease, and before the report on the inline run in which it happened.
    """

    asks: Sequence[Ask]


class Extended(NamedTuple):
    """The deadline of the lease's record number `done` was moved to `seconds` from now."""

    lease: Lease
    done: int
    seconds: float


class Demand(NamedTuple):
    """The client can take up to `limit` leases of up to `run` records each.

    `spread`: runs of more than a single record only if a single key is ready. `inline`: the thread that asks can take
    an inline lease of due messages itself, at once; never True while an inline lease is open. `below`, of lanes: of the
    home topic only records below this offset, and no run longer than `run`; an inline lease has up to `run` of these.
    `key`: the next message of this key alone, wherever it waits.
    """

    limit: int
    run: int
    spread: bool = False
    inline: bool = False
    below: int | None = None
    key: bytes | None = None


class Ended(NamedTuple):
    """Callbacks of an earlier ownership, which blocked these keys, have ended."""

    keys: Sequence[bytes]


class Tick(NamedTuple):
    """Time has passed. `stuffed`: the partition is full, so nothing more of it is read.

    `taken`: the stream has started as many messages as it may, so no trial begins. `wall`: the wall clock less the
    core's clock, in seconds; None: as before. `closing`: the stream ends, so what has finished goes into a checkpoint.
    """

    stuffed: bool = False
    taken: bool = False
    wall: float | None = None
    closing: bool = False


class CommitAnswered(NamedTuple):
    """The log answered the commit that was unanswered."""

    accepted: bool


class MovesAnswered(NamedTuple):
    """The log answered the transaction that was unanswered.

    `refused`: of an aborted transaction, the numbers of the records that can't be written at all now, and why.
    `checkpoint`:
    where the first part of its checkpoint was stored, if there was a checkpoint.
    """

    ending: Ending
    refused: Mapping[int, str] = {}
    checkpoint: int | None = None


class Written(NamedTuple):
    """The answer to `WriteDeadLetters`: the log has taken all of the dead letters, or the transaction was aborted.

    `refused`: as in `MovesAnswered`; `reason`: why the transaction was aborted, as text for the operator.
    """

    taken: bool
    refused: Mapping[int, str] = {}
    reason: str = ""


class RetryFetched(NamedTuple):
    """Records read from the retry partition, in order of offset; never while an inline lease is open."""

    records: Sequence[StoredRecord]
    epoch: int | None = None


class RetryCaughtUp(NamedTuple):
    """The retry partition was read up to its high watermark at the answer of `committed()`.

    `position`: the reader's own; records below it that the reader hasn't returned never come.
    """

    position: int
    epoch: int | None = None


class ReadUpTo(NamedTuple):
    """Both logs were read up to here: records below that weren't received never come (markers, aborted records).

    The epochs are those of the last record or marker below, where they are known.
    """

    position: int
    retry: int
    epoch: int | None = None
    retry_epoch: int | None = None


class Bodies(NamedTuple):
    """The answer to `ReadBodies`: `missing` offsets have no record; offsets in neither are asked for again."""

    records: Sequence[StoredRecord]
    missing: Sequence[int] = ()


class Revoked(NamedTuple):
    """The partition goes to another member, or comes back to this one. `closing`: it doesn't come back."""

    closing: bool = False


class Returned(NamedTuple):
    """The partition came back, and the log holds exactly this process's last commit."""


class Lost(NamedTuple):
    """The partition is no longer this member's, or another member has written to it since."""


Event = (
    Fetched
    | Passed
    | LeasesReported
    | Progressed
    | Settled
    | Awaited
    | Extended
    | Demand
    | Followed
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
