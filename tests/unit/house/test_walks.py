"""One message passes few files: each is one more that a reader of its way has to open."""

from __future__ import annotations

import pytest

from tests.unit.house.walks import PAGE, Walk, drawn, trace_walks

#: Files of each walk. A number may be lowered.
MOST = {"delivery": 33, "ack": 46, "nack": 65}


@pytest.fixture(scope="module")
def walks() -> dict[str, Walk]:
    return dict(trace_walks())


@pytest.mark.parametrize("name", MOST)
def test_a_walk_passes_few_files(name: str, walks: dict[str, Walk]) -> None:
    assert len(walks[name].files) <= MOST[name], walks[name].files


def test_a_walk_passes_the_partition(walks: dict[str, Walk]) -> None:
    assert all("subscribe/partition/partition.py" in walk.files for walk in walks.values())


@pytest.mark.parametrize("name", MOST)
def test_the_page_draws_every_file_of_a_walk(name: str, walks: dict[str, Walk]) -> None:
    lacking = set(walks[name].files) - drawn(PAGE.read_text(encoding="utf-8"))[name]
    assert lacking == set(), (
        "docs/design.md lacks files: write its table by `python -m tests.unit.house.walks --draw`"
    )
