"""tests/README.md keeps up: each folder of tests has a row that says which suite runs it."""

from __future__ import annotations

import ast
import re

import pytest

from tests.unit.house.repository import ROOT, files, relative

ROW = re.compile(r"^\| `(\w+)/` \| (\w+) \|", re.MULTILINE)
#: In two parts, so that this file doesn't carry the mark.
MARK = "pytest.mark." + "slow"


def rows() -> dict[str, str]:
    """The suite of each folder, by tests/README.md."""
    return dict(ROW.findall((ROOT / "tests" / "README.md").read_text(encoding="utf-8")))


def folders() -> set[str]:
    parts = [path.relative_to(ROOT).parts for path in files()]
    return {each[1] for each in parts if each[0] == "tests" and len(each) > 2}


def slow_as_a_whole() -> tuple[str, ...]:
    """SLOW of tests/conftest.py, read without running that module."""
    tree = ast.parse((ROOT / "tests" / "conftest.py").read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "SLOW":
            return tuple(ast.literal_eval(node.value))
    raise AssertionError("tests/conftest.py has no SLOW")


def suites(folder: str) -> set[str]:
    """Which suites run something of this folder."""
    found = set()
    slow = slow_as_a_whole()
    for path in files():
        name = relative(path)
        if not re.fullmatch(rf"tests/{folder}/(.*/)?test_\w+\.py", name):
            continue
        if name.startswith(("tests/containers/", *slow)):
            found.add("containers" if name.startswith("tests/containers/") else "slow")
            continue
        found.add("fast")
        if MARK in path.read_text(encoding="utf-8"):
            found.add("slow")
    return found


def test_each_folder_has_a_row() -> None:
    assert set(rows()) == folders()


@pytest.mark.parametrize("folder", sorted(folders()))
def test_the_row_names_the_suite_that_runs_the_folder(folder: str) -> None:
    words = {"both": {"fast", "slow"}, "none": set()}
    said = rows()[folder]
    assert words.get(said, {said}) == suites(folder), f"tests/README.md says {said!r} of tests/{folder}"
