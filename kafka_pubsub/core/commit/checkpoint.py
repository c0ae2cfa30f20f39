"""A checkpoint: all that one partition of a subscription has finished, kept as a record of its retry partition.

Theory. A commit's metadata has room for some thousand numbers, and what is finished above the committed positions may
need more. So all of it is written down in a checkpoint now and then, and the metadata names the last checkpoint and
tells only which runs are new since (`ack_map`). The records of a checkpoint are written in the transaction that commits
the metadata which names them, so a commit can always be made, however much is finished.

Rules
1. A checkpoint is named by the offset of its first record and by a nonce. Whatever else lies at that offset isn't it.
2. The metadata counts from the checkpoint that the last accepted commit named. A checkpoint whose transaction was
   aborted was never written, so nothing counts from it.
3. A run of a checkpoint stays finished. It may grow or join others, and is told anew then; it never shrinks.
4. A large checkpoint is several records, numbered, with their count and a checksum over all. With one of them missing
   or damaged it tells nothing.
5. It names both topics by their ids, because a topic that is made again has the same name and other messages.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from kafka_pubsub.core.commit.notes import NOTHING, Notes
from kafka_pubsub.core.commit.offsets import Run

__all__ = ["MOST", "NONCE_SHIFT", "Checkpoint", "Log", "Named", "Part", "joined", "news", "split", "united"]

#: A checkpoint's nonce is its ownership's, so many bits higher, and a number.
NONCE_SHIFT = 20
#: Runs of one record: some 200 KB, a fifth of what a topic takes by default.
MOST = 50_000


class Named(NamedTuple):
    """How a commit's metadata names a checkpoint: the offset of its first record, and its nonce."""

    offset: int
    nonce: int


class Log(NamedTuple):
    """One log of the two, as far as its owner has come. `runs`: what is finished above the position."""

    topic_id: str
    position: int
    runs: Sequence[Run] = ()
    #: Behind the last record that was read.
    end: int = 0
    #: The leader epoch of that record; None: it isn't known.
    epoch: int | None = None
    #: What was started and isn't finished.
    notes: Notes = NOTHING


class Checkpoint(NamedTuple):
    """What one record says, or all parts of a large one together."""

    nonce: int
    #: The random number of the process that wrote it, and the wall clock's milliseconds then.
    writer: int
    time: int
    main: Log
    retry: Log


class Part(NamedTuple):
    """One record of a checkpoint: everything but the runs is in each, the runs are cut up."""

    checkpoint: Checkpoint
    number: int
    total: int
    #: Over the whole checkpoint.
    checksum: int


def split(checkpoint: Checkpoint, most: int = MOST) -> list[Part]:
    """The records of a checkpoint, of up to `most` runs each."""
    main, retry = tuple(checkpoint.main.runs), tuple(checkpoint.retry.runs)
    checksum = _checksum(checkpoint)
    count = max(1, -(-(len(main) + len(retry)) // most))
    parts = []
    for number in range(count):
        low, high = number * most, (number + 1) * most
        beside = retry[max(0, low - len(main)) : max(0, high - len(main))]
        cut = _with_runs(checkpoint, main[low:high], beside)
        parts.append(Part(cut, number, count, checksum))
    return parts


def joined(parts: Iterable[Part]) -> Checkpoint | None:
    """The checkpoint that these are all parts of, in any order; None: they aren't (rule 4)."""
    found = sorted(parts, key=lambda part: part.number)
    if not found or [part.number for part in found] != [*range(found[0].total)]:
        return None
    main = tuple(run for part in found for run in part.checkpoint.main.runs)
    retry = tuple(run for part in found for run in part.checkpoint.retry.runs)
    whole = _with_runs(found[0].checkpoint, main, retry)
    same = all(_with_runs(part.checkpoint, (), ()) == _with_runs(whole, (), ()) for part in found)
    try:
        checksum = _checksum(whole)
    except struct.error:  # a number that none of ours can be
        return None
    return whole if same and {part.checksum for part in found} == {checksum} else None


def _with_runs(checkpoint: Checkpoint, main: Sequence[Run], retry: Sequence[Run]) -> Checkpoint:
    return checkpoint._replace(
        main=checkpoint.main._replace(runs=main), retry=checkpoint.retry._replace(runs=retry)
    )


def _checksum(checkpoint: Checkpoint) -> int:
    """Over all that it says."""
    found = zlib.crc32(struct.pack(">qQq", checkpoint.nonce, checkpoint.writer, checkpoint.time))
    for log in (checkpoint.main, checkpoint.retry):
        edges = [edge for run in (*log.notes.started, *log.runs) for edge in run]
        numbers = [
            log.position,
            log.end,
            -1 if log.epoch is None else log.epoch,
            -1 if log.notes.trial is None else log.notes.trial,
            len(log.runs),
            *edges,
        ]
        found = zlib.crc32(log.topic_id.encode(), found)
        found = zlib.crc32(struct.pack(f">{len(numbers)}q", *numbers), found)
    return found


def news(runs: Iterable[Run], told: Collection[Run]) -> list[Run]:
    """Of what is finished now the runs that a checkpoint hasn't told just so (rule 3)."""
    return [run for run in runs if run not in told] if told else list(runs)


def united(some: Iterable[Run], others: Iterable[Run], position: int = 0) -> list[Run]:
    """The runs above `position` that cover what either covers: news and what the checkpoint told."""
    runs: list[Run] = []
    for start, end in sorted([*some, *others]):
        if runs and start <= runs[-1][1]:
            runs[-1] = runs[-1][0], max(end, runs[-1][1])
        elif end > position:
            runs.append((max(start, position), end))
    return runs
