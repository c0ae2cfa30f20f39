"""The state machine of a partition is entered through `Partition`, and nothing outside looks into it.

That it has no clock, thread, socket, log or randomness is a contract in pyproject.toml (`test_imports.py`).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.house.repository import PACKAGE, ROOT, python_files, relative

ROOM = PACKAGE / "subscribe" / "partition"
_NAME = "kafka_pubsub.subscribe.partition"
#: The classes that others may name, by module; None: all. `leases` holds what events and effects speak of.
ENTRIES: dict[str, set[str] | None] = {
    "partition": {"Partition"},
    "events": None,
    "effects": None,
    "settings": None,
    "leases": {"Lease", "LeaseState", "Settlement"},
    # The partitions of a process share one.
    "crash_suspects": {"TrialLock"},
}


def outside() -> list[Path]:
    """The files of the product outside of the room."""
    product = (PACKAGE, ROOT / "spark")
    found = [path for path in python_files() if any(path.is_relative_to(each) for each in product)]
    return [path for path in found if not path.is_relative_to(ROOM)]


def named(tree: ast.AST) -> Iterator[str]:
    """Yields what a file imports from the room and may not: constants are free."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith(_NAME):
            continue
        module = (node.module or "")[len(_NAME) + 1 :]
        allowed = ENTRIES.get(module, set())
        for alias in node.names:
            if allowed is not None and alias.name not in allowed and not alias.name.isupper():
                yield f"{module}.{alias.name}"


def private() -> set[str]:
    """The private attributes and methods of `Partition`."""
    tree = ast.parse((ROOM / "partition.py").read_text(encoding="utf-8"))
    (found,) = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Partition"]
    names = {node.attr for node in ast.walk(found) if isinstance(node, ast.Attribute) and _is_own(node)}
    return {name for name in names if name.startswith("_")}


def _is_own(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")


def looked_into(tree: ast.AST, names: set[str]) -> list[str]:
    """Returns the private attributes of a partition that a file reads from another object than its own."""
    attributes = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and not _is_own(node)]
    return [node.attr for node in attributes if node.attr in names]


@pytest.mark.parametrize("path", outside(), ids=relative)
def test_only_the_entries_of_the_state_machine_are_named(path: Path) -> None:
    assert list(named(ast.parse(path.read_text(encoding="utf-8")))) == []


def test_no_code_outside_reads_the_private_state_of_a_partition() -> None:
    names = private()
    found = {
        relative(path): looked_into(ast.parse(path.read_text(encoding="utf-8")), names) for path in outside()
    }
    assert {path: read for path, read in found.items() if read} == {}


def test_a_part_that_is_named_is_found() -> None:
    tree = ast.parse(
        f"from {_NAME}.partition import Partition\n"
        f"from {_NAME}.leases import Lease, Leases\n"
        f"from {_NAME}.commits import COMMIT_INTERVAL, Commits\n"
        f"from {_NAME} import key_queues\n"
    )
    assert list(named(tree)) == ["leases.Leases", "commits.Commits", ".key_queues"]


def test_a_look_into_a_partition_is_found() -> None:
    names = private()
    assert {"_offsets", "_queues", "_leases", "_retry_partition"} <= names
    tree = ast.parse("self._queues = partition._queues.waiting()\nowned[number]._leases.active")
    assert sorted(looked_into(tree, names)) == ["_leases", "_queues"]
