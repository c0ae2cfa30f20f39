"""The words of comments and docstrings, and how many of them stand in for a name.

`python -m tests.unit.house.prose` prints the shares of each area; `--files AREA` prints the files of an area.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.unit.house.repository import python_files, relative

__all__ = ["AREAS", "Shares", "area_files", "count", "prose_of"]

#: The areas by the beginnings of their paths.
AREAS = {
    "core": (
        "kafka_pubsub/subscribe/partition/",
        "kafka_pubsub/delays/router.py",
        "kafka_pubsub/lanes/merge.py",
        "kafka_pubsub/multicast/sequencer.py",
    ),
    "package": ("kafka_pubsub/",),
    "spark": ("spark/",),
    "tests": ("tests/",),
}

_WORD = re.compile(r"[A-Za-z][A-Za-z']*")
_STAND_INS = frozenset({"it", "one", "those"})
#: Names in code aren't words of a sentence.
_CODE = re.compile(r"`[^`]*`")


class Shares(NamedTuple):
    """How many words there are, and how many of a thousand are "what", and "it", "one" or "those"."""

    words: int
    what: float
    stand_ins: float


def prose_of(source: str) -> str:
    """Returns the comments and docstrings of a module, without names in backquotes."""
    comments = [
        token.string.lstrip("#: ")
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    ]
    owners = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = [
        ast.get_docstring(node) or "" for node in ast.walk(ast.parse(source)) if isinstance(node, owners)
    ]
    return _CODE.sub("", "\n".join([*docstrings, *comments]))


@cache
def _words_of(path: Path) -> tuple[int, int, int]:
    words = [word.lower() for word in _WORD.findall(prose_of(path.read_text(encoding="utf-8")))]
    return len(words), words.count("what"), sum(word in _STAND_INS for word in words)


def count(paths: Iterable[Path]) -> Shares:
    """Returns the shares of several modules together."""
    sums = [sum(column) for column in zip(*map(_words_of, paths), strict=True)] or [0, 0, 0]
    words = max(sums[0], 1)
    return Shares(sums[0], 1000 * sums[1] / words, 1000 * sums[2] / words)


def area_files(area: str) -> list[Path]:
    """Returns the modules of an area."""
    return [path for path in python_files() if relative(path).startswith(AREAS[area])]


def _print_areas() -> None:
    for area in AREAS:
        shares = count(area_files(area))
        print(
            f"{area:8} {shares.words:7} words, per 1,000: what {shares.what:4.1f}, it/one/those {shares.stand_ins:4.1f}"
        )


def _print_files(area: str) -> None:
    for path in sorted(area_files(area), key=lambda each: -sum(_words_of(each)[1:])):
        words, what, stand_ins = _words_of(path)
        print(f"{what:3} {stand_ins:3} of {words:5}  {relative(path)}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--files"]:
        _print_files(sys.argv[2])
    else:
        _print_areas()
