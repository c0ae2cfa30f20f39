"""Whose directory is this? A file that says so, before anything else is put there.

Theory. A checkpoint is positions without a name: with another topic's, or another job's, a query goes on at the
wrong place and nobody is told. So each checkpoint of ours says which job, what it reads and where it writes; a
second start must say the same.

Rules
1. A directory that has files and no mark isn't ours, and nothing is written there.
2. The mark is written before the query starts, so a crash leaves a directory that is ours or empty.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple

from kafka_pubsub.errors import FailedPrecondition

from .cluster import Cluster
from .files import Files

__all__ = ["MARK", "Loss", "claim", "committed_offsets", "last_batch", "lost_since", "query_of"]

MARK = "kafka_pubsub.json"
_VERSION = 1


def claim(files: Files, kind: str, about: Mapping[str, str], *, path: str = "") -> bool:
    """Marks the directory as ours, or checks that it is; True if it was new."""
    mark = f"{path}/{MARK}" if path else MARK
    told = files.read(mark)
    where = files.full(path)
    if told is None:
        if names := files.names(path):
            raise FailedPrecondition(
                f"{where} isn't a {kind} of kafka_pubsub: it holds {', '.join(names[:3])} and no {MARK}; "
                "choose another path"
            )
        files.create(mark, json.dumps({"version": _VERSION, "kind": kind, **about}, indent=1))
        return True
    _check(_parsed(told, files.full(mark)), {"kind": kind, **about}, where)
    return False


def _parsed(text: str, where: str) -> dict[str, object]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise FailedPrecondition(
            f"{where} can't be read ({error}): restore it or choose another path"
        ) from error
    if not isinstance(found, dict) or found.get("version") != _VERSION:
        raise FailedPrecondition(
            f"{where} was written by another version of kafka_pubsub, or by somebody else"
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
