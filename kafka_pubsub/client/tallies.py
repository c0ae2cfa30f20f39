"""Reads the tally that a commit of a retry partition names (`core/tally`): whoever reads the map needs it, too."""

from __future__ import annotations

import logging
import time

from kafka_pubsub.client.ports import RecordFetch
from kafka_pubsub.core import ack_map, tally
from kafka_pubsub.core.retry_books import Tally
from kafka_pubsub.errors import DeadlineExceeded
from kafka_pubsub.model import Committed, TopicPartition

__all__ = ["tally_of"]

log = logging.getLogger("kafka_pubsub.subscriber")

#: Bytes and seconds of one request, and seconds for all of them.
_BYTES = 8 * 1024 * 1024
_SECONDS = 2.0
_PATIENCE = 6.0


def tally_of(fetch: RecordFetch, place: TopicPartition, stored: Committed) -> Tally | None:
    """What the tally tells that this commit names; None: it names none, or the log has lost it."""
    found = (
        ack_map.decode(stored.metadata, stored.offset)
        if stored.metadata and stored.offset is not None
        else None
    )
    if found is None or found.tally is None:
        return None
    until = time.monotonic() + _PATIENCE
    while True:
        answer = fetch.fetch(place, [found.tally], _BYTES, _SECONDS)
        runs = tally.decode(answer.records[0].value()) if answer.records else None
        if runs is not None:
            return Tally(found.tally, runs)
        if answer.records or answer.missing:
            log.error(
                "the tally at offset %d of %s[%d] is gone or damaged: what it called finished is delivered again, as "
                "far as it is still there",
                found.tally,
                *place,
            )
            return None
        if time.monotonic() >= until:
            raise DeadlineExceeded(
                f"the tally at offset {found.tally} of {place.topic}[{place.partition}] couldn't be read in "
                f"{_PATIENCE:.0f} s"
            )
