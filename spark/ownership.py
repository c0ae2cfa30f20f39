"""Whose directory is this? A file in it says so before anything else is put there.

Theory. A checkpoint is positions without a name: with another topic's or another job's checkpoint a query goes on at
the wrong place, silently. So each checkpoint of ours says which job it is for, what the job reads and where it
writes; a later start must say the same.

Rules
1. A directory that has files and no mark isn't ours, and nothing is written there.
2. The mark is written before the query starts, so a crash leaves a directory that is ours or empty.
3. A mark binds once the first batch was planned. Before that nothing can have been written anywhere, so another
   command takes the directory over: a command that was mistyped owns no path.
4. Two commands may claim a directory at once; `confirm`, in the first batch, tells the one that lost.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple

from kafka_pubsub.errors import FailedPrecondition

from .cluster import Cluster
from .files import Files

__all__ = [
    "MARK",
    "Loss",
    "check",
    "claim",
    "committed_offsets",
    "confirm",
    "last_batch",
    "lost_since",
    "query_of",
]

MARK = "kafka_pubsub.json"
_VERSION = 1


def claim(files: Files, kind: str, about: Mapping[str, str], *, begun: str) -> None:
    """Marks the directory as this job's, after `check`."""
    if check(files, kind, about, begun=begun):
        return
    if files.exists(MARK):
        # Positions that another command noted are another topic's.
        files.delete()
    files.create(MARK, _text(kind, about))


def check(files: Files, kind: str, about: Mapping[str, str], *, begun: str) -> bool:
    """Returns whether the directory is this job's already; nothing is written.

    `FailedPrecondition` if it belongs to something else. `begun` is the directory in it that has files from the first
    batch on.
    """
    told = files.read(MARK)
    if told is None:
        if names := files.names():
            raise FailedPrecondition(
                f"{files.root} isn't a {kind} of kafka_pubsub: it holds {', '.join(names[:3])} and no {MARK}; "
                "choose another path"
            )
    elif files.names(begun):
        _check(_parsed(told, files.full(MARK)), {"kind": kind, **about}, files.root)
    return told == _text(kind, about)


def _text(kind: str, about: Mapping[str, str]) -> str:
    return json.dumps({"version": _VERSION, "kind": kind, **about}, indent=1)


def confirm(files: Files, kind: str, about: Mapping[str, str]) -> None:
    """`FailedPrecondition` if another command has claimed the directory since `claim`."""
    told = files.read(MARK)
    if told is None:
        raise FailedPrecondition(f"{files.full(MARK)} was deleted while the job started: start it again")
    _check(_parsed(told, files.full(MARK)), {"kind": kind, **about}, files.root)


def _parsed(text: str, where: str) -> dict[str, object]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise FailedPrecondition(
            f"{where} can't be read ({error}): restore it or choose another path"
        ) from error
    if not isinstance(found, dict) or found.get("version") != _VERSION:
        raise FailedPrecondition(
            f"{where} was written by another version of kafka_pubsub, or by another program"
        )
    return found


def _check(found: Mapping[str, object], wanted: Mapping[str, str], where: str) -> None:
    different = [
        f"{name} is {found.get(name)!r} there and {value!r} here"
        for name, value in wanted.items()
        if found.get(name) != value
    ]
    if different:
        raise FailedPrecondition(
            f"{where} belongs to another job: {'; '.join(different)}; choose another path"
        )


def query_of(checkpoint: Files) -> str | None:
    """The id of the query whose checkpoint this is; None before its first start."""
    told = checkpoint.read("metadata")
    return None if told is None else str(json.loads(told)["id"])


def last_batch(checkpoint: Files) -> int:
    """The last batch that was finished; -1 for none."""
    return max((int(name) for name in checkpoint.names("commits") if name.isdigit()), default=-1)


def committed_offsets(checkpoint: Files) -> dict[str, dict[int, int]]:
    """Where the query goes on: topic -> partition -> offset; empty before its first start."""
    last = last_batch(checkpoint)
    if last >= 0:
        # Version, then the batch's settings, then a line for each source; our jobs have one.
        source = (checkpoint.read(f"offsets/{last}") or "\n\n-").splitlines()[2]
    else:
        # Where it began: a NUL and the version, then the same.
        source = (checkpoint.read("sources/0/0") or "\n-").partition("\n")[2]
    if source == "-":
        return {}
    return {
        topic: {int(number): offset for number, offset in partitions.items()}
        for topic, partitions in json.loads(source).items()
    }


class Loss(NamedTuple):
    """Offsets that the query should read next and that are gone; or (`other`) another topic is where they were."""

    topic: str
    partition: int | None
    first: int
    last: int
    other: str = ""

    def __str__(self) -> str:
        where = (
            f"topic {self.topic!r}" if self.partition is None else f"{self.topic} partition {self.partition}:"
        )
        return f"{where} {self.other or f'offsets {self.first} to {self.last} are gone'}"


def lost_since(checkpoint: Files, cluster: Cluster) -> list[Loss]:
    """What the query should read next and can't any more; empty: nothing is lost."""
    wanted = committed_offsets(checkpoint)
    there = cluster.topics()
    lost = [Loss(topic, None, 0, 0, "is gone") for topic in wanted if topic not in there]
    topics = [topic for topic in wanted if topic in there]
    beginnings, ends = cluster.beginnings(topics), cluster.ends(topics)
    for place, first in sorted(beginnings.items()):
        # A partition that is new is read from its beginning, which is 0.
        offset = wanted[place.topic].get(place.partition, 0)
        if first > offset:
            lost.append(Loss(place.topic, place.partition, offset, first - 1))
        elif ends[place] < offset:
            said = f"it ends at {ends[place]}, before {offset}, so it was made again"
            lost.append(Loss(place.topic, place.partition, offset, offset, said))
    return lost
