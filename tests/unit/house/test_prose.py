"""Comments and docstrings name things: "what", "it", "one" and "those" are counted (`prose.py`), and stay few."""

from __future__ import annotations

import pytest

from tests.unit.house.prose import AREAS, area_files, count, prose_of

#: By area the most of "what", and of "it", "one" and "those", among a thousand words. A number may be lowered.
MOST = {"core": (3.0, 14.0), "package": (5.8, 31.0), "spark": (6.0, 28.0), "tests": (6.0, 16.0)}


def test_each_area_has_its_limits() -> None:
    assert set(MOST) == set(AREAS)


@pytest.mark.parametrize("area", AREAS)
def test_few_words_stand_in_for_names(area: str) -> None:
    found = count(area_files(area))
    what, stand_ins = MOST[area]
    assert found.words > 1000
    assert found.what <= what, (
        "`python -m tests.unit.house.prose --files AREA` lists the files with most of them"
    )
    assert found.stand_ins <= stand_ins, "`python -m tests.unit.house.prose --files AREA` lists them"


def test_words_of_comments_and_docstrings_are_counted_and_no_others() -> None:
    source = '"""What it is."""\nit = "one of those"  # those of `it`\n#: One.\n'
    assert sorted(prose_of(source).split()) == ["One.", "What", "is.", "it", "of", "those"]
