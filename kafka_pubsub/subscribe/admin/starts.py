"""Where a new subscription begins: at the end of its topic, at the oldest message that is left, or at a time.

Rules
1. A time is found by the records' timestamps: the subscription begins, in each partition, at the first message that was
   published then or later. Where there is none it begins at the end.
2. No position lies beyond the last stable offset, so that no message of an open transaction is skipped.
3. If the cluster has deleted messages of after the wanted time, the subscription begins at the oldest one that is left,
   and a warning says so.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta

from kafka_pubsub.errors import InvalidArgument
from kafka_pubsub.log.ports import Admin
from kafka_pubsub.model import TopicPartition
from kafka_pubsub.options import Start

__all__ = ["Beginnings", "check_start"]

_log = logging.getLogger("kafka_pubsub.subscriber")

_FORMS = '"latest", "earliest", a datetime with a time zone, or a timedelta (how long ago)'


def check_start(start: object, now: float) -> float | None:
    """Returns the time in seconds since 1970 at which to begin; None for "latest" and "earliest"."""
    if start in ("latest", "earliest"):
        return None
    if isinstance(start, timedelta):
        moment = now - start.total_seconds()
    elif isinstance(start, datetime):
        if start.tzinfo is None:
            raise InvalidArgument(
                f"start: {start} has no time zone, so it would be another moment on another machine: give it one, for "
                "example datetime.now(UTC)"
            )
        moment = start.timestamp()
    else:
        raise InvalidArgument(f"start must be {_FORMS}, not {start!r:.80}")
    if moment > now:
        raise InvalidArgument(
            f"start: {start!r} is in the future; leave it out to begin with what comes from now on"
        )
    return max(0.0, moment)


class Beginnings:
    """The positions at which one new subscription begins."""

    def __init__(self, admin: Admin, subscription: str, start: Start, now: Callable[[], float]) -> None:
        self._admin = admin
        self._subscription = subscription
        self._start = start
        self._time = check_start(start, now())

    def of(self, topic: str) -> dict[int, int]:
        """Returns the position of each partition of the topic, or of a lane's Kafka topic."""
        ends = self._admin.last_stable_offsets(topic)
        if self._start == "latest":
            return dict(ends)
        places = [TopicPartition(topic, number) for number in ends]
        first = {place.partition: start for place, (start, _) in self._admin.log_ranges(places).items()}
        if self._time is None:
            return {number: min(first[number], end) for number, end in ends.items()}
        found = self._admin.offsets_at(topic, int(self._time * 1000))
        self._tell_deleted(topic, found, first)
        return {number: min(max(found.get(number, end), first[number]), end) for number, end in ends.items()}

    def _tell_deleted(self, topic: str, found: Mapping[int, int], first: Mapping[int, int]) -> None:
        """Warns of partitions whose first message that is left is already one of after the wanted time."""
        short = [number for number, start in first.items() if start and found.get(number, start + 1) <= start]
        if short and self._time is not None:
            _log.warning(
                "subscription %r begins at the oldest messages of topic %r that are left, in partitions %s: what was "
                "published from %s on is partly deleted there by the topic's retention",
                self._subscription,
                topic,
                ", ".join(map(str, sorted(short)[:20])),
                datetime.fromtimestamp(self._time, UTC).isoformat(timespec="seconds"),
            )
