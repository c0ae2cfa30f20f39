"""Things have names: the words that stand in for a name are counted, and there are none.

The right-hand column of docs/glossary.md counts too, in names and in sentences, in the package and in the tests: a word
that the glossary replaces isn't used. `OTHER_MEANINGS` names the words that mean something else as well.
"""

from __future__ import annotations

import io
import re
import tokenize
from functools import cache
from pathlib import Path

import pytest

from tests.unit.house.prose import prose_of
from tests.unit.house.repository import ROOT, files, python_files, relative

# The brackets keep the pattern from matching its own source.
STAND_INS = re.compile(r"\b(?:who[e]ver|no[b]ody|some[b]ody|any[b]ody)\b", re.IGNORECASE)
PLACES = ("kafka_pubsub/", "spark/", "docs/", "README.md", "CONTRIBUTING.md")

#: Words of the right-hand column that mean something else as well, by the reason.
OTHER_MEANINGS = {
    "plain English": "again, done with, double, fail, half, hold, life, lost, missing, out, told, try, turn",
    "a word of Kafka, Python or logging": (
        "consumer, cycle, inherited, leader, level, member, metadata, message key, notes, offset, participant, queue, "
        "replica, starved, vote"
    ),
    "another idea of the glossary": "engine, key, place, position, reference, release, walk",
    "a word of Python, of a model or of a schema": (
        "bucket, books, depth, focus, map, pack, plant, pointer, prepare, reply, submit, bundle, cursor, main log"
    ),
    "still to be replaced": (
        "flight, handler, holder, letter, main, outstanding, persistent, settle, settled, stuck, tail, "
        "watermark"
    ),
}


@cache
def replaced_words() -> tuple[str, ...]:
    """The words of the right-hand column without another meaning."""
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    terms, _, contributors = text.partition("## Words that only contributors need")
    rows = [line.strip().strip("|").split("|") for line in terms.splitlines() if line.startswith("|")]
    cells = [row[-1] for row in rows[2:]]
    rows = [line.strip().strip("|").split("|") for line in contributors.splitlines() if line.startswith("|")]
    cells += [row[0] for row in rows[2:]]
    words = {word.strip(" `") for cell in cells for word in re.sub(r"\([^)]*\)", "", cell).split(",")}
    other = {word for group in OTHER_MEANINGS.values() for word in group.split(", ")}
    return tuple(sorted(words - other - {""}))


def replaced_in(source: str) -> list[str]:
    """The replaced words in the names and sentences of a module."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    names = {token.string.replace("_", " ") for token in tokens if token.type == tokenize.NAME}
    texts = [re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name) for name in names] + [prose_of(source)]
    words = " | ".join(texts).lower()
    return [word for word in replaced_words() if re.search(rf"(?<![a-z]){re.escape(word)}s?(?![a-z])", words)]


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


def modules(place: str) -> list[Path]:
    found = [path for path in python_files() if relative(path).startswith(place)]
    return [path for path in found if path != Path(__file__)]


@pytest.mark.parametrize("place", ["kafka_pubsub/", "tests/"])
def test_words_that_the_glossary_replaces_are_not_used(place: str) -> None:
    found = {relative(path): replaced_in(path.read_text(encoding="utf-8")) for path in modules(place)}
    assert {name: words for name, words in found.items() if words} == {}


def test_a_replaced_word_is_found_in_names_and_sentences() -> None:
    assert replaced_in("def next_" + "fate():\n    pass\n") == ["fate"]
    assert replaced_in("class " + "Crew:\n    pass\n") == ["crew"]
    assert replaced_in("#: The " + "morgue.\n") == ["morgue"]
    assert not replaced_in("#: A lease report.\n")
