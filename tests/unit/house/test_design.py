"""docs/design.md keeps up: a reason for every dependency, a place on the map for every room."""

from __future__ import annotations

import re

import pytest
from packaging.requirements import Requirement

from tests.unit.house.repository import PACKAGE, ROOT, files, project, relative


def section(title: str) -> str:
    text = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    found = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found, f"docs/design.md has no section {title!r}"
    return found[1]


def dependencies() -> list[str]:
    metadata = project()["project"]
    groups = [metadata["dependencies"], *metadata["optional-dependencies"].values()]
    names = {Requirement(text).name for group in groups for text in group}
    return sorted(names - {metadata["name"]})


def rooms() -> list[str]:
    """Directories and modules at the top of the package that git knows."""
    inside = [
        path.relative_to(PACKAGE) for path in files() if path.is_relative_to(PACKAGE) and path.suffix == ".py"
    ]
    return sorted({f"{path.parts[0]}/" if len(path.parts) > 1 else path.name for path in inside})


@pytest.mark.parametrize("name", dependencies())
def test_every_dependency_has_its_reason(name: str) -> None:
    rows = [
        line for line in section("Dependencies").splitlines() if re.match(rf"\| `{re.escape(name)}` \|", line)
    ]
    assert len(rows) == 1, f"docs/design.md, Dependencies: {len(rows)} rows for {name}"
    assert len(rows[0].split("|")[-2].strip()) > 20, rows[0]


@pytest.mark.parametrize("room", rooms())
def test_every_room_is_on_the_file_map(room: str) -> None:
    assert re.search(rf"(?<![\w/]){re.escape(room)}", section("File map")), f"{room} is not on the map"


def test_the_map_names_no_file_that_is_gone() -> None:
    named = set(re.findall(r"`((?:kafka_pubsub|tests|docs|\.ci)/[\w./-]+)`", section("File map")))
    known = {relative(path) for path in files()}
    gone = {
        name
        for name in named
        if name not in known and not any(k.startswith(name.rstrip("/") + "/") for k in known)
    }
    assert gone == set()
