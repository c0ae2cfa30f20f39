"""The settings of a partition's state machine: its limits, the subscription's rules, and where an ownership begins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kafka_pubsub.model import UNREAD, LogEnd, Run
from kafka_pubsub.subscribe.formats.checkpoint import Named
from kafka_pubsub.subscribe.formats.notes import NO_DOUBT, NOTHING, Doubt, Notes
from kafka_pubsub.subscribe.partition.backoff import Backoff, Policy
from kafka_pubsub.subscribe.partition.effects import CommitBoth

__all__ = [
    "BACKLOG",
    "BACKLOG_BYTES",
    "DUE",
    "EVERYTHING",
    "HANDED",
    "RECORD_OVERHEAD",
    "SHORTEST_RUN",
    "SLOW",
    "RetryStart",
    "Rules",
    "Start",
]

#: Records that one sweep hands over together, where runs allow it: some milliseconds of work for fast callbacks. Fewer
#: would cost round trips; more would spread the finished ones so far that the metadata fills.
HANDED = 1024
SHORTEST_RUN = 16
#: Records of an inline lease of due messages, or some more: as many as are read at a time for a lease of new ones.
DUE = 500

#: Bytes that a buffered record costs beside its body: the objects that hold it.
RECORD_OVERHEAD = 500


#: What may wait in memory behind a message that is parked, or with its callback for `SLOW` seconds. More is moved
#: behind it: it would fill the buffers and the metadata, for the sake of one key.
BACKLOG = 100
BACKLOG_BYTES = 1024 * 1024
SLOW = 1.0


#: The end of a log where it isn't known: no offset lies beyond.
EVERYTHING = 2**63 - 1


class Rules(NamedTuple):
    """The subscription's rules. Durations are seconds."""

    ordered: bool
    ack_deadline: float = 10.0
    max_extension: float = 3600.0
    backoff: Backoff = Backoff()
    policy: Policy = Policy()
    #: The subscription's name, for dead letters.
    subscription: str = ""
    #: Whether commits are made sooner for acks that a caller waits for.
    exactly_once: bool = False


class RetryStart(NamedTuple):
    """Where an ownership of a retry partition begins.

    `main_notes` and `notes`: what the last owner had started; `main_doubt` and `doubt`: whether that matters. `end` is
    the retry partition's end at the takeover, `main_exists` main's, asked for after that. `wall`: the wall clock less
    the core's clock, in seconds. `known`: all that is finished of the retry partition. `checkpoint`: the one that the
    last commit named; `in_checkpoint` and `main_in_checkpoint`: the runs that it holds of the retry partition and of
    main. `read` and `main_read`: the ends of what was ever read of each.
    """

    topic: str
    topic_id: str
    position: int
    known: Sequence[Run] = ()
    main_notes: Notes = NOTHING
    main_doubt: Doubt = NO_DOUBT
    notes: Notes = NOTHING
    doubt: Doubt = NO_DOUBT
    end: int = 0
    wall: float = 0.0
    nonce: int = 0
    main_exists: int = EVERYTHING
    retry_id: str = ""
    checkpoint: Named | None = None
    in_checkpoint: Sequence[Run] = ()
    main_in_checkpoint: Sequence[Run] = ()
    read: LogEnd = UNREAD
    main_read: LogEnd = UNREAD
    #: Whether the positions are older than what was written since, because the broker had forgotten the group's
    #: offsets. Then main isn't read before the retry partition is caught up.
    older: bool = False


class Start(NamedTuple):
    """Where an ownership begins: what the log holds, and which keys old callbacks of this process still have."""

    number: int
    epoch: int
    writer: int
    stored: CommitBoth
    position: int
    retry: RetryStart
    known: Sequence[Run] = ()
    held_back: Sequence[bytes] = ()
