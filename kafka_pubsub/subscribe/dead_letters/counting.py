"""Counts a subscription's dead letters, without reading more of the dead-letter topic than it may.

Rules
1. The newest records are read first: of a topic that is larger than the limit the count shows what came last.
2. Dead letters that were replayed or purged aren't read, and don't count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from kafka_pubsub.config import SubscriptionRecord
from kafka_pubsub.errors import BrokerUnavailable, DeadlineExceeded, NotFound, PermissionDenied
from kafka_pubsub.log.ports import Backend, RecordFetch
from kafka_pubsub.model import TopicPartition
from kafka_pubsub.subscribe.dead_letters.processed_marks import read_marks
from kafka_pubsub.subscribe.dead_letters.scan import read_some, reader_of, shares

__all__ = ["BYTES_A_RECORD", "DeadLetterCount", "count_dead_letters"]

#: Where so many records may be read, so many bytes may be read for each: larger records end the reading sooner.
BYTES_A_RECORD = 2_000
#: Seconds for one request of the ends.
SECONDS = 5.0


class DeadLetterCount(NamedTuple):
    """The dead letters by the Kafka topic that they were published to, and the number of offsets that weren't read."""

    by_topic: Mapping[str, int]
    unread: int = 0


def count_dead_letters(
    backend: Backend, fetch: RecordFetch, record: SubscriptionRecord, limit: int
) -> DeadLetterCount | None:
    """Counts the unfinished dead letters in the topic of the subscription's policy; reads `limit` records at most.

    Returns None if the topic can't be read: the right is missing, or no leader answers.
    """
    policy = record.options.dead_letter
    if policy is None:
        return DeadLetterCount({})
    try:
        return _count(backend, fetch, record.name, policy.topic, limit)
    except NotFound:
        return DeadLetterCount({})  # the topic is gone, and its dead letters
    except (PermissionDenied, BrokerUnavailable, DeadlineExceeded):
        return None


def _count(
    backend: Backend, fetch: RecordFetch, subscription: str, topic: str, limit: int
) -> DeadLetterCount:
    info = backend.admin.topic(topic)
    places = [TopicPartition(topic, number) for number in range(info.partitions)]
    ends = backend.admin.readable_ends(places, SECONDS)
    if len(ends) < len(places):
        raise BrokerUnavailable(f"not all leaders of dead-letter topic {topic!r} answer: try again")
    used = [place for place, end in ends.items() if end]
    starts = backend.admin.log_ranges(used) if used else {}
    stored = {place: range(start, ends[place]) for place, (start, _) in starts.items() if start < ends[place]}
    if not stored:
        return DeadLetterCount({})
    marks = read_marks(backend.admin, fetch)
    sizes = {place: marks.count_open(info.topic_id, place.partition, run) for place, run in stored.items()}
    wanted = {
        place: marks.newest_open(info.topic_id, place.partition, stored[place], share)
        for place, share in shares(sizes, limit).items()
    }
    read, found = reader_of(subscription), Counter[str]()
    seen = 0
    for place, some in read_some(fetch, wanted, limit * BYTES_A_RECORD).items():
        letters = (read(each) for each in some.records)
        found.update(letter.topic for letter in letters if letter is not None)
        seen += len(wanted[place]) - len(some.unread)
    return DeadLetterCount(found, sum(sizes.values()) - seen)
