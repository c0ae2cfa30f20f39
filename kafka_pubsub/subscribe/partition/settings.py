"""The inputs of a partition's state machine: limits, the subscription's rules, where an ownership begins.

Rules
1. Backoff is exponential with full jitter: between `minimum` and `maximum` the wait before attempt n is drawn
   from the minimum up to `minimum * 2**(n - 2)`, so that many failures at once don't come back at once. A minimum
   of 0 grows like `SOON`.
2. Without a policy a message is delivered again as soon as possible: after `SOON`, so that a callback that always fails
   doesn't keep a processor busy.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import NamedTuple, Protocol

from kafka_pubsub.log.records import Record
from kafka_pubsub.model import UNREAD, LogEnd, Run
from kafka_pubsub.partition_id import PartitionId
from kafka_pubsub.subscribe.formats.checkpoint import Named
from kafka_pubsub.subscribe.formats.notes import NO_DOUBT, NOTHING, Doubt, Notes
from kafka_pubsub.subscribe.partition.effects import CommitBoth

__all__ = [
    "BACKLOG",
    "BACKLOG_BYTES",
    "DUE",
    "EVERYTHING",
    "HANDED",
    "LONGEST_DELAY",
    "RECORD_OVERHEAD",
    "REJECTED",
    "SHORTEST_RUN",
    "SLOW",
    "SOON",
    "Backoff",
    "Exhausted",
    "Found",
    "LogStart",
    "Names",
    "Policy",
    "Rules",
    "Start",
]

#: Records that a sweep hands over together, where runs allow it: some milliseconds of work for fast callbacks. Fewer
#: would cost round trips; more would spread the finished ones so far that the metadata fills.
HANDED = 1024
SHORTEST_RUN = 16
#: Records of an inline lease of due messages, or some more: as many as are read at a time for a lease of new ones.
DUE = 500

#: Bytes that a buffered record costs beside its body: the objects that hold it.
RECORD_OVERHEAD = 500


#: The most that may wait in memory behind a message that is parked, or with its callback for `SLOW` seconds. More is
#: moved behind that message: it would fill the buffers and the metadata, for the sake of a single key.
BACKLOG = 100
BACKLOG_BYTES = 1024 * 1024
SLOW = 1.0


#: The end of a log where that isn't known: no offset lies beyond.
EVERYTHING = 2**63 - 1


#: Seconds; short beside any callback worth retrying, long beside a busy loop.
SOON = 0.01
#: Seconds; the longest delay that a nack may ask for.
LONGEST_DELAY = 7 * 86_400
#: In the place of a nack's delay: the callback gave the message up, so it isn't delivered again.
REJECTED = -1.0


class Backoff(NamedTuple):
    """The bounds of the wait before a redelivery, in seconds."""

    minimum: float = SOON
    maximum: float = SOON

    def wait(self, attempt: int, jitter: float) -> float:
        """Returns the wait before delivery `attempt` (2 is the first redelivery); `jitter` is drawn from [0, 1)."""
        ceiling = min(self.maximum, max(self.minimum, SOON) * 2.0 ** min(attempt - 2, 60))
        return self.minimum + jitter * (ceiling - self.minimum)


class Exhausted(Enum):
    """The policy for a message whose attempts are used up."""

    DEAD_LETTER = "dead_letter"
    PARK = "park"


class Policy(NamedTuple):
    """When attempts are used up (0: never), and the policy then. Crashes of a blamed message count as attempts."""

    max_attempts: int = 0
    on_exhausted: Exhausted = Exhausted.DEAD_LETTER

    def used_up(self, deliveries: int) -> bool:
        """Returns whether no further delivery is allowed after so many."""
        return 0 < self.max_attempts <= deliveries

    @property
    def dead_letters(self) -> bool:
        """Whether a message that is given up becomes a dead letter; else it is parked until released."""
        return self.max_attempts > 0 and self.on_exhausted is Exhausted.DEAD_LETTER


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


class LogStart(NamedTuple):
    """Where an ownership begins in one log, the home partition's or the retry partition's."""

    position: int
    #: All that is finished above the position.
    known: Sequence[Run] = ()
    #: What the last owner had started, and whether that matters.
    notes: Notes = NOTHING
    doubt: Doubt = NO_DOUBT
    #: The log's end at the takeover; of home asked for after that of the retry partition.
    end: int = 0
    #: The runs that the checkpoint holds.
    in_checkpoint: Sequence[Run] = ()
    #: How far the log was ever read.
    read: LogEnd = UNREAD


class Found(NamedTuple):
    """What the log holds of a partition at a takeover. `partition`: its number in the Kafka topics."""

    topic: str
    topic_id: str
    home: LogStart = LogStart(0, end=EVERYTHING)
    retry: LogStart = LogStart(0)
    partition: int = 0
    #: The wall clock less the partition's clock, in seconds.
    wall: float = 0.0
    nonce: int = 0
    retry_id: str = ""
    #: The checkpoint that the last commit named.
    checkpoint: Named | None = None
    #: Whether the positions are older than the records written since, because the broker had forgotten the group's
    #: offsets. Then home isn't read before the retry partition is caught up.
    older: bool = False


class Start(NamedTuple):
    """Where an ownership begins: the log's contents, and which keys old callbacks of this process still have."""

    number: PartitionId
    epoch: int
    writer: int
    stored: CommitBoth
    found: Found
    held_back: Sequence[bytes] = ()


class Names(Protocol):
    """A view of all lanes of a topic. `number`: of the partition that asks."""

    def waits(self, number: PartitionId, key: bytes, record: Record, now: float) -> bool:
        """Returns whether the key's first message waits for another lane; if so, notes the wait, with the reason."""
        ...

    def may_wait(self, number: PartitionId, record: Record) -> bool:
        """Returns whether a message waits for another lane."""
        ...

    def changed(self, keys: Iterable[bytes | None]) -> None:
        """Takes note that messages of these keys may be finished."""
        ...

    def reason(self, number: PartitionId, key: bytes) -> str | None:
        """Returns the reason for which the key's first message waits; None: it doesn't."""
        ...
