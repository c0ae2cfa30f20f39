"""A file over its limit mixes two concerns: split it by concern, not by length."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.house.repository import PACKAGE, python_files, relative

CORE_LIMIT = 350
LIMIT = 500


def limit(path: Path) -> int:
    return CORE_LIMIT if path.is_relative_to(PACKAGE / "core") else LIMIT


@pytest.mark.parametrize("path", python_files(), ids=relative)
def test_no_file_is_longer_than_its_limit(path: Path) -> None:
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines <= limit(path), f"{relative(path)} has {lines} lines, the limit is {limit(path)}"


def test_core_has_the_tighter_limit() -> None:
    assert limit(PACKAGE / "core" / "partition.py") == 350
    assert limit(PACKAGE / "app.py") == 500
    assert limit(PACKAGE.parent / "tests" / "unit" / "test_x.py") == 500
