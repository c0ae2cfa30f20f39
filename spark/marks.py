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

from kafka_pubsub.errors import FailedPrecondition

from .cluster import Cluster
from .files import Files

__all__ = ["MARK", "claim", "committed_offsets", "last_batch", "lost_since", "query_of"]

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
    """Where the query goes on: topic -> partition -> offset."""
    last = last_batch(checkpoint)
    told = checkpoint.read(f"offsets/{last}") if last >= 0 else None
    # Version, then the batch's settings, then a line for each source; our jobs have one.
    source = None if told is None else told.splitlines()[2]
    if source is None or source == "-":
        return {}
    return {
        topic: {int(number): offset for number, offset in partitions.items()}
        for topic, partitions in json.loads(source).items()
    }


def lost_since(checkpoint: Files, cluster: Cluster) -> list[str]:
    """What the query should read next and can't any more, for a person; empty: nothing is lost."""
    wanted = committed_offsets(checkpoint)
    there = cluster.topics()
    lost = [f"topic {topic!r} is gone" for topic in wanted if topic not in there]
    topics = [topic for topic in wanted if topic in there]
    beginnings, ends = cluster.beginnings(topics), cluster.ends(topics)
    for place, first in sorted(beginnings.items()):
        offset = wanted[place.topic].get(place.partition)
        if offset is None:
            continue
        if first > offset:
            lost.append(
                f"{place.topic} partition {place.partition}: offsets {offset} to {first - 1} are gone"
            )
        elif ends[place] < offset:
            lost.append(
                f"{place.topic} partition {place.partition}: it ends at {ends[place]}, before {offset}, so it was "
                "made again"
            )
    return lost
