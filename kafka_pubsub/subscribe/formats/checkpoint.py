"""A checkpoint: all that one partition of a subscription has finished, kept as records of its retry partition.

Theory. A commit's metadata has room for some thousand numbers, and what is finished above the committed positions may
need more. So all of it is written to a checkpoint now and then; the metadata names the last checkpoint and lists only
the runs that are new since (`ack_map`). The records of a checkpoint are written in the transaction that commits the
metadata which names them, so a commit can always be made, however much is finished.

Rules
1. A checkpoint is named by the offset of its first record and by a nonce. Another record at that offset isn't it.
2. The metadata counts from the checkpoint that the last accepted commit named. A checkpoint whose transaction was
   aborted was never written, so nothing counts from it.
3. A run of a checkpoint stays finished. It may grow or join others, and is then listed anew; it never shrinks.
4. A large checkpoint is several records, numbered, with their count and a checksum over all. If one of them is missing
   or damaged, the checkpoint doesn't count.
5. It names both topics by their ids, because a topic that is made again has the same name and other messages.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from kafka_pubsub.model import Run
from kafka_pubsub.subscribe.formats.notes import NOTHING, Notes

__all__ = ["MOST", "NONCE_SHIFT", "Checkpoint", "Log", "Named", "Part", "joined", "news", "split", "united"]

#: A checkpoint's nonce is the ownership's nonce, shifted by so many bits, and a number.
NONCE_SHIFT = 20
#: Runs of one record: some 200 KB, a fifth of what a topic accepts by default.
MOST = 50_000


class Named(NamedTuple):
    """How a commit's metadata names a checkpoint: the offset of its first record, and its nonce."""

    offset: int
    nonce: int


class Log(NamedTuple):
    """One of the two logs, as far as its owner has come. `runs`: what is finished above the position."""

    topic_id: str
    position: int
    runs: Sequence[Run] = ()
    #: The offset behind the last record that was read.
    end: int = 0
    #: The leader epoch of that record; None: it isn't known.
    epoch: int | None = None
    #: The messages that were started and aren't finished.
    notes: Notes = NOTHING


class Checkpoint(NamedTuple):
    """The content of one record, or of all parts of a large checkpoint together."""

    nonce: int
    #: The random number of the process that wrote it, and its wall clock in milliseconds then.
    writer: int
    time: int
    main: Log
    retry: Log


class Part(NamedTuple):
    """One record of a checkpoint: each has everything but the runs, which are divided among them."""

    checkpoint: Checkpoint
    number: int
    total: int
    #: The checksum of the whole checkpoint.
    checksum: int


def split(checkpoint: Checkpoint, most: int = MOST) -> list[Part]:
    """Returns the records of a checkpoint, of up to `most` runs each."""
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
    """Returns the checkpoint of which these are all parts, in any order; None: they aren't (rule 4)."""
    found = sorted(parts, key=lambda part: part.number)
    if not found or [part.number for part in found] != [*range(found[0].total)]:
        return None
    checkpoints = [part.checkpoint for part in found]
    main = tuple(run for each in checkpoints for run in each.main.runs)
    retry = tuple(run for each in checkpoints for run in each.retry.runs)
    whole = _with_runs(found[0].checkpoint, main, retry)
    same = all(_with_runs(part.checkpoint, (), ()) == _with_runs(whole, (), ()) for part in found)
    try:
        checksum = _checksum(whole)
    except struct.error:  # a number that no checkpoint of ours has
        return None
    return whole if same and {part.checksum for part in found} == {checksum} else None


def _with_runs(checkpoint: Checkpoint, main: Sequence[Run], retry: Sequence[Run]) -> Checkpoint:
    return checkpoint._replace(
        main=checkpoint.main._replace(runs=main), retry=checkpoint.retry._replace(runs=retry)
    )


def _checksum(checkpoint: Checkpoint) -> int:
    """Returns the checksum over everything in the checkpoint."""
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


def news(runs: Iterable[Run], in_checkpoint: Collection[Run]) -> list[Run]:
    """Returns the finished runs that the checkpoint doesn't hold in exactly this form (rule 3)."""
    return [run for run in runs if run not in in_checkpoint] if in_checkpoint else list(runs)


def united(some: Iterable[Run], others: Iterable[Run], position: int = 0) -> list[Run]:
    """Returns the runs above `position` that cover what either side covers: new runs and the checkpoint's."""
    runs: list[Run] = []
    for start, end in sorted([*some, *others]):
        if runs and start <= runs[-1][1]:
            runs[-1] = runs[-1][0], max(end, runs[-1][1])
        elif end > position:
            runs.append((max(start, position), end))
    return runs
