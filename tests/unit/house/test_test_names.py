"""A module's tests have its name and its place, so that a reader finds them without a search.

Rules
1. A file of `tests/unit/<folder>/` is called `test_<module>.py`, after a module of `kafka_pubsub/<folder>/`. A second
   file about the same module, or a file about the folder as a whole, adds its subject: `test_<module>_<subject>.py`.
2. Folders that mirror no folder of the package have another subject each, which `OTHERS` names.
3. Of the modules with logic, nearly all (`SHARE`) have a file of their name: a unit test, a property test, a contract
   test (for `log/kafka/` and `log/memory/`) or an integration test in a folder of the same name.
4. A module has logic from `DECISIONS` branches, loops and conditions on. A part of `subscribe/partition/` may be tested
   through `Partition`: nothing outside of the folder can reach the part in another way.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

from tests.unit.house.repository import PACKAGE, ROOT, python_files, relative

UNIT = ROOT / "tests" / "unit"
#: The subjects of the folders that mirror no folder of the package.
OTHERS = {
    "bench": "parts of tests/benchmarks",
    "deploy": "deploy/ at the top of the repository",
    "house": "rules of this repository",
    "pages": "programs and commands in docs/",
    "schemas": "schemas/ at the top of the repository",
}
#: Branches, loops and conditions from which on a module has logic of its own.
DECISIONS = 15
#: Of these modules.
SHARE = 0.95
#: Whose parts are reached through a single class.
ONE_ENTRY = PACKAGE / "subscribe" / "partition"

_DECIDE = (
    ast.If,
    ast.IfExp,
    ast.For,
    ast.AsyncFor,
    ast.While,
    ast.Try,
    ast.BoolOp,
    ast.comprehension,
    ast.Match,
)


def unit_tests() -> list[Path]:
    """The files of unit tests that follow rule 1."""
    found = [path for path in python_files() if path.is_relative_to(UNIT) and path.name.startswith("test_")]
    return [path for path in found if path.relative_to(UNIT).parts[0] not in OTHERS]


def modules() -> list[Path]:
    """The modules of the package with logic of their own."""
    found = [
        path for path in python_files() if path.is_relative_to(PACKAGE) and not path.name.startswith("__")
    ]
    return [path for path in found if decisions(path) >= DECISIONS]


@cache
def decisions(path: Path) -> int:
    """How many branches, loops and conditions a module has."""
    return sum(isinstance(node, _DECIDE) for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


def subjects(folder: Path) -> set[str]:
    """The names that files of tests of a folder may begin with: its modules and its own."""
    inside = {path.stem for path in folder.glob("*.py") if not path.name.startswith("__")}
    return inside | {folder.name} if folder.is_dir() else set()


def is_named_after(test: Path, names: set[str]) -> bool:
    """Whether a file of tests is named after any of the names, with or without a subject behind the name."""
    words = test.stem.removeprefix("test_").split("_")
    return any("_".join(words[:count]) in names for count in range(1, len(words) + 1))


def has_tests(module: Path) -> bool:
    """Whether a module has a file of tests of its name where rule 3 looks."""
    place = module.relative_to(PACKAGE).parent
    wanted = f"test_{module.name}"
    tests = ROOT / "tests"
    if any((at / wanted).is_file() for at in (UNIT / place, tests / "integration" / place.name)):
        return True
    if place.parent.name == "log" and (tests / "contract" / wanted).is_file():
        return True
    return (tests / "property" / wanted).is_file() and names_module(tests / "property" / wanted, module)


def names_module(test: Path, module: Path) -> bool:
    """Whether a file of tests imports from a module."""
    dotted = ".".join(module.relative_to(ROOT).with_suffix("").parts)
    return f"from {dotted} import" in test.read_text(encoding="utf-8")


@pytest.mark.parametrize("test", unit_tests(), ids=relative)
def test_a_file_of_unit_tests_is_named_after_a_module(test: Path) -> None:
    folder = PACKAGE / test.relative_to(UNIT).parent
    assert is_named_after(test, subjects(folder)), f"no module of {relative(folder)} has the name"


def test_modules_with_logic_have_tests_of_their_name() -> None:
    wanted = [each for each in modules() if each.parent != ONE_ENTRY or has_tests(each)]
    missing = [relative(each) for each in wanted if not has_tests(each)]
    share = 1 - len(missing) / len(wanted)
    assert share >= SHARE, f"{share:.0%} of {len(wanted)}; without tests of their name: {missing}"


def test_the_folders_with_another_subject_exist() -> None:
    assert [name for name in OTHERS if not (UNIT / name).is_dir() or (PACKAGE / name).is_dir()] == []


def test_names_are_judged() -> None:
    names = {"router", "lane_sender", "delays"}
    assert is_named_after(Path("test_router.py"), names)
    assert is_named_after(Path("test_lane_sender_holds.py"), names)
    assert not is_named_after(Path("test_lane.py"), names)
    assert not is_named_after(Path("test_routers.py"), names)
