"""Reads the checkpoint that a commit names (`partition/checkpoint.py`) and that completes the commit's metadata.

Rules
1. A transaction's positions may be known before its records can be read. So the reader waits for a named checkpoint.
2. The records of a checkpoint are searched from the first one on: another writer's records may lie between them.
3. A reader that isn't the owner may find a checkpoint gone though nothing is wrong: the owner has named the next one
   and deleted the retry partition below it. All retry offsets that the old checkpoint records are deleted, too.
4. If the broker has forgotten a group's positions, the newest checkpoint of the same two topics counts.
5. A checkpoint that a newer version of the client has written is refused wherever it would count.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import chain
from typing import NamedTuple

from kafka_pubsub.errors import DeadlineExceeded, FailedPrecondition
from kafka_pubsub.log.ports import Backend, RecordFetch
from kafka_pubsub.model import Committed, LogEnd, Run, StoredRecord, TopicPartition
from kafka_pubsub.subscribe.formats import ack_map
from kafka_pubsub.subscribe.formats.ack_map import AckMap
from kafka_pubsub.subscribe.formats.checkpoint import (
    NONCE_SHIFT,
    Checkpoint,
    Log,
    Named,
    Part,
    joined,
    united,
)
from kafka_pubsub.subscribe.retry_topic import checkpoint_records as checkpoints

__all__ = [
    "Finished",
    "Pair",
    "checkpoint_of",
    "checkpoints_of",
    "finished_at_home",
    "finished_of",
    "finished_runs",
    "gaps",
    "map_of",
    "named_by",
    "newest",
    "offsets_of",
    "stored_by",
]

#: Bytes and seconds of one request, and seconds for all of them.
_BYTES = 8 * 1024 * 1024
_SECONDS = 2.0
_PATIENCE = 6.0
#: Offsets that are read together, and the most offsets that are searched for the further records of a checkpoint.
_TOGETHER, _FAR = 32, 10_000


def map_of(stored: Committed | None) -> AckMap | None:
    """Decodes a commit's metadata; None: there is none that this client can read."""
    if stored is None or stored.offset is None or not stored.metadata:
        return None
    return ack_map.decode(stored.metadata, stored.offset)


def named_by(*commits: Committed) -> list[Named]:
    """Returns the checkpoints that the commits of a pair name and need: one, if both are of one request."""
    maps = [found for stored in commits if (found := map_of(stored))]
    return list(dict.fromkeys(found.checkpoint for found in maps if found.checkpoint and found.more))


def checkpoint_of(fetch: RecordFetch, beside: TopicPartition, named: Named, end: int) -> Checkpoint | None:
    """Reads a named checkpoint from a retry partition that ended at `end`; None: it is gone or damaged."""
    return checkpoints_of(fetch, {beside: (named, end)}).get(beside)


def checkpoints_of(
    fetch: RecordFetch, wanted: Mapping[TopicPartition, tuple[Named, int]]
) -> Mapping[TopicPartition, Checkpoint]:
    """Reads the checkpoints of many retry partitions together; omits those that are gone or damaged."""
    parts: dict[TopicPartition, list[Part]] = {place: [] for place in wanted}
    runs = {place: range(named.offset, named.offset + 1) for place, (named, _) in wanted.items()}
    while runs:
        for place, records in _records_of(fetch, runs).items():
            for record in records:
                part = _part(record, refuses=not parts[place])
                if part is not None and part.checkpoint.nonce == wanted[place][0].nonce:
                    parts[place].append(part)
        runs = {
            place: further
            for place, run in runs.items()
            if (further := _further(run, parts[place], *wanted[place]))
        }
    found = {place: joined(some) for place, some in parts.items()}
    return {place: checkpoint for place, checkpoint in found.items() if checkpoint is not None}


def _further(run: range, parts: Sequence[Part], named: Named, end: int) -> range:
    """Returns the next offsets to search for a checkpoint's further records, after a run; empty: none."""
    if not parts or len(parts) >= parts[0].total:
        return range(0)
    return range(run.stop, min(end, named.offset + _FAR, run.stop + _TOGETHER))


def newest(
    fetch: RecordFetch, ranges: Mapping[TopicPartition, tuple[int, int]], ids: tuple[str, str]
) -> Mapping[TopicPartition, tuple[Named, Checkpoint]]:
    """Finds each retry partition's last checkpoint that is whole and belongs to these topics (home and retry ids).

    `ranges`: the first offset and the end of each log. All logs are searched together, backwards.
    """
    found: dict[TopicPartition, tuple[Named, Checkpoint]] = {}
    runs = {place: _before(low, end) for place, (low, end) in ranges.items() if low < end}
    while runs:
        begun = {place: _begin(records) for place, records in _records_of(fetch, runs).items()}
        while begun := {place: some for place, some in begun.items() if some and place not in found}:
            named = {place: some.pop() for place, some in begun.items()}
            whole = checkpoints_of(fetch, {place: (each, ranges[place][1]) for place, each in named.items()})
            for place, found_checkpoint in whole.items():
                if (found_checkpoint.main.topic_id, found_checkpoint.retry.topic_id) == ids:
                    found[place] = named[place], found_checkpoint
        left = {place: run for place, run in runs.items() if place not in found}
        runs = {p: _before(ranges[p][0], run.start) for p, run in left.items() if run.start > ranges[p][0]}
    return found


def _before(low: int, high: int) -> range:
    """Returns the last offsets below `high`, as many as are read together."""
    return range(max(low, high - _TOGETHER), high)


def _begin(records: Iterable[StoredRecord]) -> list[Named]:
    """Returns the names of the checkpoints that begin with one of these records."""
    return [named for record in records for named in _begins(record)]


def _begins(record: StoredRecord) -> Iterator[Named]:
    """Yields the name of the checkpoint that begins with this record, if one does."""
    part = _part(record, refuses=True)
    if part is not None and part.number == 0:
        yield Named(record.offset() or 0, part.checkpoint.nonce)


def stored_by(named: Named, log: Log, position: int) -> Committed:
    """Builds a commit that stands for a log's part of a checkpoint, at the checkpoint's position or above."""
    more = any(end > position for _, end in log.runs)
    read = LogEnd(log.end, log.epoch)
    said = AckMap(0, (), True, named.nonce >> NONCE_SHIFT, checkpoint=named, more=more, read=read)
    return Committed(position, ack_map.encode(said, position))


def _part(record: StoredRecord, *, refuses: bool) -> Part | None:
    """Decodes a record as part of a checkpoint; with `refuses` raises if its version is newer (rule 5)."""
    version = checkpoints.version_of(record.headers() or ())
    if refuses and version is not None and version > checkpoints.VERSION:
        raise FailedPrecondition(
            f"the checkpoint at offset {record.offset()} of {record.topic()}[{record.partition()}] is of version "
            f"{version}, and this client reads versions up to {checkpoints.VERSION}: a newer kafka_pubsub has written "
            "it. Nothing is delivered, because what was finished would be delivered again; update this process"
        )
    return None if version is None else checkpoints.decode(record.value(), version)


def _records_of(
    fetch: RecordFetch, wanted: Mapping[TopicPartition, Sequence[int]]
) -> Mapping[TopicPartition, Sequence[StoredRecord]]:
    """Reads the records at these offsets; waits until each is read or known to be missing (rule 1)."""
    until = time.monotonic() + _PATIENCE
    records: dict[TopicPartition, list[StoredRecord]] = {place: [] for place in wanted}
    left = {place: list(offsets) for place, offsets in wanted.items() if offsets}
    while left:
        seen = False
        for place, found in fetch.fetch_all(left, _BYTES, _SECONDS).items():
            records[place] += found.records
            here = {record.offset() for record in found.records} | set(found.missing)
            left[place] = [offset for offset in left[place] if offset not in here]
            seen = seen or bool(here)
        left = {place: offsets for place, offsets in left.items() if offsets}
        if left and not seen and time.monotonic() >= until:
            place, offsets = next(iter(left.items()))
            raise DeadlineExceeded(
                f"the checkpoint at offset {offsets[0]} of {place.topic}[{place.partition}] couldn't be read in "
                f"{_PATIENCE:.0f} s"
            )
    return records


class Pair(NamedTuple):
    """The commits of a home partition and of its retry partition `beside`, which ends at `end`."""

    home: Committed
    retry: Committed
    beside: TopicPartition
    end: int


class Finished(NamedTuple):
    """The finished runs above both positions of a pair.

    `whole`: False if the checkpoint that completes them is gone (rule 3), or if the commits name two: then the owner
    has stored other positions meanwhile.
    """

    home: Sequence[Run]
    retry: Sequence[Run]
    whole: bool


def finished_of(fetch: RecordFetch, pairs: Sequence[Pair]) -> list[Finished]:
    """Returns what is finished in each of the pairs; reads all their checkpoints together."""
    names = [
        [named for named in named_by(pair.home, pair.retry) if named.offset < pair.end] for pair in pairs
    ]
    wanted = {
        pair.beside: (some[0], pair.end) for pair, some in zip(pairs, names, strict=True) if len(some) == 1
    }
    found = checkpoints_of(fetch, wanted) if wanted else {}
    return [
        _finished(pair, checkpoint := found.get(pair.beside), whole=len(some) == (checkpoint is not None))
        for pair, some in zip(pairs, names, strict=True)
    ]


def _finished(pair: Pair, found: Checkpoint | None, *, whole: bool) -> Finished:
    home, retry = map_of(pair.home), map_of(pair.retry)
    in_home = found.main.runs if found is not None and home is not None and home.more else ()
    in_retry = found.retry.runs if found is not None and retry is not None and retry.more else ()
    return Finished(_whole(home, in_home, pair.home), _whole(retry, in_retry, pair.retry), whole)


def finished_runs(fetch: RecordFetch, beside: TopicPartition, stored: Committed, end: int) -> Sequence[Run]:
    """Returns the finished runs above the position of a retry partition's commit, with those of its checkpoint.

    The log ends at `end`, or beyond.
    """
    found_checkpoint = _checkpoint_beside(fetch, beside, found := map_of(stored), end)
    return _whole(found, () if found_checkpoint is None else found_checkpoint.retry.runs, stored)


def finished_at_home(backend: Backend, beside: TopicPartition | None, stored: Committed) -> Sequence[Run]:
    """Returns the same for a commit of a home partition; `beside`: its retry partition, if there is one."""
    found, found_checkpoint = map_of(stored), None
    if beside is not None and found is not None and found.more:
        end = backend.admin.high_watermarks([beside])[beside]
        with closing(backend.record_fetch()) as fetch:
            found_checkpoint = _checkpoint_beside(fetch, beside, found, end)
    return _whole(found, () if found_checkpoint is None else found_checkpoint.main.runs, stored)


def _checkpoint_beside(
    fetch: RecordFetch, beside: TopicPartition, found: AckMap | None, end: int
) -> Checkpoint | None:
    # A checkpoint at or beyond the end was in an earlier topic of that name.
    if found is None or found.checkpoint is None or not found.more or found.checkpoint.offset >= end:
        return None
    return checkpoint_of(fetch, beside, found.checkpoint, end)


def _whole(found: AckMap | None, found_checkpoint: Sequence[Run], stored: Committed) -> Sequence[Run]:
    return () if found is None else united(found.runs, found_checkpoint, stored.offset or 0)


def gaps(position: int, runs: Iterable[Run], end: int) -> list[Run]:
    """Returns the runs of offsets from `position` to `end` that the given ascending runs don't cover."""
    found = []
    for start, stop in runs:
        found.append((position, min(start, end)))
        position = max(position, stop)
    return [(start, stop) for start, stop in (*found, (position, end)) if start < stop]


def offsets_of(runs: Iterable[Run]) -> Iterator[int]:
    """Yields the offsets in these runs."""
    return chain.from_iterable(range(start, stop) for start, stop in runs)
