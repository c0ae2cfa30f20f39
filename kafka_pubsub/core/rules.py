"""What a partition's state machine is told once: its measures, the subscription's rules, where an ownership begins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kafka_pubsub.core.effects import Commit, CommitBoth
from kafka_pubsub.core.notes import NOTHING, Notes
from kafka_pubsub.core.offsets import Run
from kafka_pubsub.core.redelivery import Backoff, Policy
from kafka_pubsub.core.retry_books import Tally

__all__ = [
    "BACKLOG",
    "BACKLOG_BYTES",
    "EVERYTHING",
    "HANDED",
    "RECORD_OVERHEAD",
    "SHORTEST_RUN",
    "SLOW",
    "RetryStart",
    "Rules",
    "Start",
]

#: Records that one sweep hands over together, where runs allow it: some milliseconds of work for fast handlers.
#: Fewer would cost round trips; more would spread the finished ones so far that the map fills.
HANDED = 1024
SHORTEST_RUN = 16

#: Bytes that a buffered record costs beside its body: the objects that hold it.
RECORD_OVERHEAD = 500


#: What may wait in memory behind a message that is parked, or with its handler for `SLOW` seconds. More is relocated
#: behind it: it would fill the buffers and the map, for the sake of one key.
BACKLOG = 100
BACKLOG_BYTES = 1024 * 1024
SLOW = 1.0


#: Where an end isn't known: no offset lies beyond.
EVERYTHING = 2**63 - 1


class Rules(NamedTuple):
    """What the subscription asks for. Durations are seconds."""

    ordered: bool
    ack_deadline: float = 10.0
    max_extension: float = 3600.0
    backoff: Backoff = Backoff()
    policy: Policy = Policy()
    #: The subscription's name, for dead letters.
    subscription: str = ""
    #: Whether commits hurry for acks that somebody waits for.
    exactly_once: bool = False


class RetryStart(NamedTuple):
    """What an ownership with a retry partition is told besides.

    `clean`: the last owner said that nothing it had started was left, or nobody owned the partition before. The ends
    are those of the logs at the takeover: `main_end` as far as the dead owner may have come, `main_exists` the whole of
    it, asked for after `end`. `wall`: the wall clock less the core's clock then, in seconds. `known` is what the retry
    partition's map tells, `tally` what the record tells that the map names.
    """

    topic: str
    topic_id: str
    position: int
    known: Sequence[Run] = ()
    clean: bool = True
    main_notes: Notes = NOTHING
    main_end: int = 0
    notes: Notes = NOTHING
    end: int = 0
    wall: float = 0.0
    nonce: int = 0
    main_exists: int = EVERYTHING
    tally: Tally | None = None


class Start(NamedTuple):
    """Where an ownership begins: what the log holds, and which keys old handlers of this process still have."""

    number: int
    epoch: int
    writer: int
    stored: Commit | CommitBoth
    position: int
    known: Sequence[Run] = ()
    held_back: Sequence[bytes] = ()
    #: None: the subscription has no retry topic; what isn't acked comes again in its place.
    retry: RetryStart | None = None
