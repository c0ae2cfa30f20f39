"""The records of partitions that came or went while a read ran.

Theory. The records may be of an assignment that is over. A record at exactly the offset from which the new assignment
is read is right in any case: the log has one record there. So is each that follows without a gap. A gap may be a hole
of the log or the end of what the earlier assignment had fetched, so what is behind it is read again. Where records
were in hand when the assignment came, all are read again: the client would return those once more.

To drop all of them would cost the first message of a stream half a second: the client's next fetch has begun by then,
and the broker waits for newer records.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from confluent_kafka import Message

from kafka_pubsub.log.kafka.conversions import where_of
from kafka_pubsub.model import LogEnd, ReadFrom, TopicPartition

__all__ = ["sort_moved"]


def sort_moved(
    records: Sequence[Message],
    starts: Mapping[TopicPartition, ReadFrom | None],
    late: Collection[TopicPartition] = (),
) -> tuple[list[Message], dict[TopicPartition, ReadFrom]]:
    """Returns the records to keep, and where to read partitions again.

    `starts`: the partitions that came or went, and where to read each from now; None: it isn't read now.
    `late`: those that came or went while records were in hand.
    """
    kept: list[Message] = []
    again: dict[TopicPartition, ReadFrom] = {}
    following: dict[TopicPartition, ReadFrom] = {}
    for record in records:
        where = where_of(record)
        if where is None or where not in starts:
            kept.append(record)
            continue
        start = following.get(where, starts[where])
        if start is None:
            continue
        # An error comes once only. If it is of the assignment that is over, reporting it does no harm.
        if record.error() is not None:
            kept.append(record)
        elif (
            where not in again
            and where not in late
            and record.offset() == (start.offset if isinstance(start, LogEnd) else start)
        ):
            kept.append(record)
            following[where] = LogEnd((record.offset() or 0) + 1, record.leader_epoch())
        else:
            again.setdefault(where, start)
    return kept, again
