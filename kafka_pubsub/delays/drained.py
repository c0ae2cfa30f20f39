"""Whether a growth of the delays is over: nothing from before it waits any more, by the logs and commits alone.

Rules
1. Publishers have `LEARN` seconds to learn of the growth from when ingest got its partitions. What a former partition
   took in until then is from before, by the times that its leader has stamped.
2. Nothing of it waits once the commits of all former partitions have passed it in ingest, and none of it is found in
   the tiers. The commits are read first, so what hops meanwhile is found in one of its places.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from kafka_pubsub.delays.growth import Growth
from kafka_pubsub.delays.layout import GROUP, INGEST, DelayLayout, tiers_of
from kafka_pubsub.delays.waiting import waiting_messages
from kafka_pubsub.log.clocks import wall_time
from kafka_pubsub.log.ports import Backend
from kafka_pubsub.model import TopicPartition
from kafka_pubsub.publish.writer_pool import RENEW_S

__all__ = ["LEARN", "find_remains"]

#: Seconds until all publishers count as having learnt: Java's, as Spark has, ask after 300 seconds, ours sooner.
LEARN: Final = max(900.0, 4 * RENEW_S)


def find_remains(backend: Backend, growth: Growth, grown: float) -> str:
    """Returns why a growth isn't over, whose partitions ingest got at this time (seconds since 1970); empty: it is."""
    known_at = grown + LEARN
    if wall_time(backend.clock) < known_at:
        return f"publishers may learn of it until {_said(known_at)}"
    admin = backend.admin
    places = [TopicPartition(INGEST, number) for number in range(growth.former)]
    ends, later = admin.high_watermarks(places), admin.offsets_at(INGEST, round(known_at * 1000))
    growth = growth._replace(ends=tuple(later.get(each.partition, ends[each]) for each in places))
    commits = admin.unstable_offsets(GROUP, places)
    layout = DelayLayout(tiers_of(admin.topic_names()), growth.former)
    unread, count, last = 0, 0, 0.0
    fetch = backend.record_fetch()
    try:
        for number, place in enumerate(places):
            waiting = []
            for message in waiting_messages(admin, fetch, layout, number):
                offset = int(message.id.rpartition(":")[2])
                waiting.append(offset)
                if growth.is_from_before(number, offset):
                    count += 1
                    last = max(last, message.due.timestamp() if message.due is not None else 0.0)
            unread += not growth.is_drained(number, commits[place].offset or 0, waiting)
    finally:
        fetch.close()
    if count:
        return f"{count} messages from before it wait, the last one until {_said(last)}"
    return f"routers aren't through what came in before it, in {unread} partitions" if unread else ""


def _said(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
