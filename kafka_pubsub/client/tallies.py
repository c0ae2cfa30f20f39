"""Reads the tally that a commit of a retry partition names (`core/tally`): whoever reads the map needs it, too.

Rules
1. Who only looks may find a tally gone though nothing is wrong: the owner names the next one, and trims. All that the
   old one tells lies below it, so that is gone, too, and the map alone tells what is left to be told.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from kafka_pubsub.client.ports import RecordFetch
from kafka_pubsub.core import ack_map, tally
from kafka_pubsub.core.offsets import Run
from kafka_pubsub.core.retry_books import Tally, united
from kafka_pubsub.core.retry_record import RETRY_HEADER, RetryInfo, Why, decode
from kafka_pubsub.errors import DeadlineExceeded
from kafka_pubsub.model import Committed, Header, TopicPartition

__all__ = ["finished_runs", "gaps", "is_tally", "offsets_of", "tally_of"]

#: Bytes and seconds of one request, and seconds for all of them.
_BYTES = 8 * 1024 * 1024
_SECONDS = 2.0
_PATIENCE = 6.0


def tally_of(fetch: RecordFetch, place: TopicPartition, stored: Committed) -> Tally | None:
    """What the tally tells that this commit names; None: it names none, or the log has it no more."""
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
            return None
        if time.monotonic() >= until:
            raise DeadlineExceeded(
                f"the tally at offset {found.tally} of {place.topic}[{place.partition}] couldn't be read in "
                f"{_PATIENCE:.0f} s"
            )


def is_tally(headers: Sequence[Header]) -> bool:
    """Whether a record with these headers is a tally."""
    found = decode(headers[-1][1]) if headers and headers[-1][0] == RETRY_HEADER else None
    return isinstance(found, RetryInfo) and found.why is Why.TALLY


def finished_runs(fetch: RecordFetch, place: TopicPartition, stored: Committed, end: int) -> Sequence[Run]:
    """The runs above its position that this commit of a retry partition calls finished, a tally's among them.

    The log ends at `end`, or beyond.
    """
    if stored.offset is None or not stored.metadata:
        return ()
    found = ack_map.decode(stored.metadata, stored.offset)
    if found is None:
        return ()
    # One at or beyond the end was in an earlier topic of that name.
    told = tally_of(fetch, place, stored) if found.tally is not None and found.tally < end else None
    return found.runs if told is None else united(found.runs, told.runs)


def gaps(position: int, runs: Iterable[Run], end: int) -> list[Run]:
    """The runs of offsets from `position` to `end` that these, ascending, don't cover."""
    found = []
    for start, stop in runs:
        found.append((position, min(start, end)))
        position = max(position, stop)
    return [(start, stop) for start, stop in (*found, (position, end)) if start < stop]


def offsets_of(runs: Iterable[Run]) -> Iterator[int]:
    """The offsets in these runs."""
    return chain.from_iterable(range(start, stop) for start, stop in runs)
