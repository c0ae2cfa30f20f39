"""Where an ownership of a partition begins: at the stored position, which is checked or refused, never guessed.

Rules
1. A stored position is used as it is. Its metadata is used if it can be read; else all above it is delivered again.
2. No stored position: the broker has forgotten that of an idle group. The catalog's copy is used; without one, refuse.
3. A position below the log's start: retention has deleted records that were never delivered. That can't be
   undone: go on at the start, and log how many are gone.
4. A position above the log's end: the log isn't the one that was read. Refuse.
5. Metadata of a newer version: refuse, and name the version. Records that it calls finished are never redelivered.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import NamedTuple

from kafka_pubsub.config import SubscriptionRecord
from kafka_pubsub.errors import FailedPrecondition
from kafka_pubsub.model import Committed, Run, TopicPartition
from kafka_pubsub.subscribe.formats import ack_map
from kafka_pubsub.subscribe.formats.checkpoint import Named

__all__ = ["REACH", "TRY_AGAIN", "Beginning", "beginning", "check_readable", "reach"]

log = logging.getLogger("kafka_pubsub.subscriber")

#: Offsets above a dead owner's position that it may have started without a note. Messages beyond are within reach
#: at the next crash.
REACH = 5_000
#: Seconds between two requests to take partitions on.
TRY_AGAIN = 0.5


class Beginning(NamedTuple):
    """Where to begin in one log, and what is finished above it, as the metadata says.

    `checkpoint`: the one that the metadata names, and whether it holds more (`partition/checkpoint.py`).
    """

    position: int
    known: Sequence[Run] = ()
    checkpoint: Named | None = None
    more: bool = False


def reach(begun: Beginning, end: int) -> int:
    """Returns how far a dead owner may have come in the home partition, whose log ends at `end`."""
    covered = begun.known[-1][1] if begun.known else begun.position
    return min(end, covered + REACH)


def check_readable(record: SubscriptionRecord, place: TopicPartition, stored: Committed) -> None:
    """Raises `FailedPrecondition` if a newer version of the client has written the stored metadata (rule 5)."""
    if stored.offset is None or not stored.metadata:
        return
    try:
        ack_map.decode(stored.metadata, stored.offset)
    except FailedPrecondition as error:
        raise FailedPrecondition(
            f"subscription {record.name!r}, partition {place.partition} of topic {place.topic!r}: {error.message}"
        ) from error


def beginning(
    record: SubscriptionRecord,
    number: int,
    committed: Committed,
    log_range: tuple[int, int],
    *,
    lane: bool = False,
) -> Beginning:
    """Returns where partition `number` of a subscription begins. A new `lane` begins at 0, without a warning."""
    where = f"partition {number} of topic {record.topic!r}"
    offset = committed.offset
    known: Sequence[Run] = ()
    checkpoint, more = None, False
    if offset is None:
        offset = record.positions.get(number)
        if offset is None:
            raise FailedPrecondition(
                f"subscription {record.name!r} has no position in {where}, neither in its group nor in the catalog; "
                "create the subscription again, or commit a position for the group"
            )
        log.log(
            logging.INFO if lane and not offset else logging.WARNING,
            "subscription %r: the group has no position in %s (a partition that was added, or a group that was idle "
            "longer than the broker keeps offsets); going on from the catalog's copy, offset %d: of an old partition "
            "messages may be delivered again",
            record.name,
            where,
            offset,
        )
    elif committed.metadata:
        found = ack_map.decode(committed.metadata, offset)
        if found is None:
            log.warning(
                "subscription %r: the metadata beside offset %d in %s isn't readable; what it held is delivered again",
                record.name,
                offset,
                where,
            )
        else:
            known, checkpoint, more = found.runs, found.checkpoint, found.more
    low, high = log_range
    if offset > high:
        raise FailedPrecondition(
            f"subscription {record.name!r} stands at offset {offset} of {where}, which ends at {high}: the log was "
            "truncated or the topic was made again; delete the subscription and create it again"
        )
    if offset < low:
        log.error(
            "subscription %r: %d messages of %s were deleted by the topic's retention before they were delivered; "
            "going on at offset %d",
            record.name,
            low - offset,
            where,
            low,
        )
        offset = low
    return Beginning(offset, known, checkpoint, more)
