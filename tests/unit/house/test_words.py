"""Things have names: the words that stand in for a name are counted, and there are none."""

from __future__ import annotations

import re

import pytest

from tests.unit.house.repository import files, relative

# The brackets keep the pattern from matching its own source.
STAND_INS = re.compile(r"\b(?:who[e]ver|no[b]ody|some[b]ody|any[b]ody)\b", re.IGNORECASE)
PLACES = ("kafka_pubsub/", "spark/", "docs/", "README.md", "CONTRIBUTING.md")


def finds(text: str) -> list[str]:
    return [
        f"{number}: {line.strip()}"
        for number, line in enumerate(text.splitlines(), 1)
        if STAND_INS.search(line)
    ]


@pytest.mark.parametrize("place", PLACES)
def test_things_are_named(place: str) -> None:
    texts = [path for path in files() if relative(path).startswith(place) and path.suffix in {".py", ".md"}]
    assert texts
    assert [
        f"{relative(path)}:{find}" for path in texts for find in finds(path.read_text(encoding="utf-8"))
    ] == []


def test_a_stand_in_is_found() -> None:
    assert finds("It is told by no" + "body.")
    assert not finds("It is told by no member.")
