"""Marks a directory as a job's checkpoint or state, and refuses a directory that belongs to another job.

Theory. A checkpoint holds positions and no names: with another topic's or another job's checkpoint a query would
silently go on at wrong offsets. So a file in the directory, the mark, says which job it is for, what the job reads and
where it writes. A later start must say the same.

Rules
1. Nothing is written to a directory that has files and no mark.
2. The mark is written before the query starts, so after a crash the directory is marked or empty.
3. A mark binds as soon as the first batch was planned. Before that the job can't have written anything, so another
   command may take the directory over: a mistyped command doesn't occupy a path.
4. Two commands may claim a directory at once. `confirm`, in the first batch, then raises an error in one of them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from kafka_pubsub.errors import FailedPrecondition

from ..base.files import Files

__all__ = [
    "MARK",
    "check",
    "claim",
    "committed_offsets",
    "confirm",
    "is_open",
    "last_batch",
    "last_planned",
    "planned_offsets",
    "query_of",
]

MARK = "kafka_pubsub.json"
_VERSION = 1


def claim(files: Files, kind: str, about: Mapping[str, str], *, begun: str) -> None:
    """Marks the directory as this job's, after `check`. `begun` is as for `check`."""
    if check(files, kind, about, begun=begun):
        return
    if files.exists(MARK):
        # The positions of another command may belong to another topic.
        files.delete()
    files.create(MARK, _text(kind, about))


def check(files: Files, kind: str, about: Mapping[str, str], *, begun: str) -> bool:
    """Returns whether the directory is this job's already; writes nothing.

    Raises `FailedPrecondition` if it belongs to another job or program. `begun` is the directory in it that has files
    as soon as the first batch was planned.
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
    """Raises `FailedPrecondition` if another command has claimed the directory since `claim`."""
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
    """Returns the id of the query whose checkpoint this is; None before its first start."""
    told = checkpoint.read("metadata")
    return None if told is None else str(json.loads(told)["id"])


def last_batch(checkpoint: Files) -> int:
    """Returns the number of the last batch that was finished; -1 if there is none."""
    return max((int(name) for name in checkpoint.names("commits") if name.isdigit()), default=-1)


def last_planned(checkpoint: Files) -> int:
    """Returns the number of the last batch that was planned; -1 if there is none."""
    return max((int(name) for name in checkpoint.names("offsets") if name.isdigit()), default=-1)


def committed_offsets(checkpoint: Files) -> dict[str, dict[int, int]]:
    """Returns where the query goes on, as topic -> partition -> offset; empty before its first start."""
    last = last_batch(checkpoint)
    if last >= 0:
        return planned_offsets(checkpoint, last)
    # The file of the source's first offsets has a NUL and the version, and then the same line.
    return _offsets_in((checkpoint.read("sources/0/0") or "").partition("\n")[2])


def planned_offsets(checkpoint: Files, number: int) -> dict[str, dict[int, int]]:
    """Returns where a batch ends, as topic -> partition -> offset; empty if it wasn't planned."""
    told = None if number < 0 else checkpoint.read(f"offsets/{number}")
    if told is None:
        return {}
    # The file has a version, the batch's settings, and a line for each source; jobs have one source.
    lines = told.splitlines()
    if len(lines) < 3:
        raise FailedPrecondition(
            f"{checkpoint.full(f'offsets/{number}')} isn't whole: restore the checkpoint"
        )
    return _offsets_in(lines[2])


def _offsets_in(line: str) -> dict[str, dict[int, int]]:
    if line in ("", "-"):
        return {}
    return {
        topic: {int(number): offset for number, offset in partitions.items()}
        for topic, partitions in json.loads(line).items()
    }


def is_open(checkpoint: Files) -> bool:
    """Returns whether a batch was planned and isn't finished; Spark runs that one first."""
    return last_planned(checkpoint) > last_batch(checkpoint)
