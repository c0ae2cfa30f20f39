"""How many messages wait in the delays, and for how long the first of them is overdue, by a few requests.

Theory. Each log of the delays is in the order of leaving. So the first record that wasn't handled says how late the log
is, and the first one that rests in a router's memory says how late its home is. Nothing else has to be read.

Rule: transactions leave markers and requests to cancel lie between messages, so the count is an upper bound.
"""

from __future__ import annotations

from contextlib import closing
from typing import NamedTuple

from kafka_pubsub.delays.layout import GROUP, DelayLayout
from kafka_pubsub.delays.progress import parse_ingest, parse_tier
from kafka_pubsub.delays.records import DELAY_HEADER, decode_delayed, decode_request
from kafka_pubsub.log.ports import Backend
from kafka_pubsub.model import StoredRecord, TopicPartition
from kafka_pubsub.subscribe.dead_letters.scan import header_of

__all__ = ["DelayFigures", "look_at_delays"]

#: Offsets that are read to find a message: markers may lie before it.
_FEW = 5
#: Seconds of a request, and bytes of a body.
_SECONDS, _BYTES = 5.0, 1024 * 1024


class DelayFigures(NamedTuple):
    """How many messages wait, at most, and for how many seconds the first of those that are due has been due."""

    waiting: int
    overdue: float


class _Log(NamedTuple):
    """A log of the delays: below `handled` all was handled but what rests in memory, from `position` on."""

    is_ingest: bool
    position: int
    handled: int
    end: int

    def looked_at(self) -> set[int]:
        """Returns the offsets to read."""
        starts = [self.handled] if self.position >= self.handled else [self.position, self.handled]
        return {at for start in starts for at in range(start, min(start + _FEW, self.end))}


def look_at_delays(backend: Backend, layout: DelayLayout, now: float) -> DelayFigures:
    """Looks at all logs; `now` in seconds since 1970."""
    admin = backend.admin
    places = [TopicPartition(topic, number) for topic in layout.topics for number in range(layout.partitions)]
    stored = admin.group_positions(GROUP, places)
    ends = admin.readable_ends(places, _SECONDS)
    starts = {place: low for place, (low, _) in admin.log_ranges(places).items()}
    logs: dict[TopicPartition, _Log] = {}
    for place, end in ends.items():
        said = stored.get(place)
        at = starts.get(place, 0) if said is None or said.offset is None else said.offset
        is_ingest = place.topic == layout.topics[0]
        progress = (parse_ingest if is_ingest else parse_tier)(at, "" if said is None else said.metadata)
        logs[place] = _Log(is_ingest, at, max(at, progress.handled), end)
    wanted = {place: sorted(offsets) for place, log in logs.items() if (offsets := log.looked_at())}
    late = 0.0
    if wanted:
        with closing(backend.record_fetch()) as fetch:
            for place, found in fetch.fetch_all(wanted, _BYTES, _SECONDS).items():
                late = max(late, *(_late(logs[place], record, now) for record in found.records), 0.0)
    return DelayFigures(sum(max(0, log.end - log.handled) for log in logs.values()), late)


def _late(log: _Log, record: StoredRecord, now: float) -> float:
    """Returns for how many seconds a record has been due."""
    header = header_of(record, DELAY_HEADER)
    if log.is_ingest:
        asked = decode_request(header)
        if asked is None or (record.offset() or 0) < log.handled:
            return 0.0
        due = asked.due if asked.due is not None else record.timestamp()[1] + (asked.delay or 0)
    else:
        delayed = decode_delayed(header)
        if delayed is None:
            return 0.0
        due = delayed.due if (record.offset() or 0) < log.handled else delayed.leaves
    return max(0.0, now - due / 1000)
