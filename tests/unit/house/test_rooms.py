"""Each package of `kafka_pubsub` says in its `__init__` which others it may import, and imports no other."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.unit.house.repository import ROOT

PACKAGE = ROOT / "kafka_pubsub"
SENTENCE = re.compile(r"May import, beside top modules: (.+?)\.(?:\s|$)", re.DOTALL)
#: Modules at the top are layers of their own (`lint-imports`), and these two folders hold rooms only.
PACKAGES = sorted(
    path.parent.relative_to(PACKAGE).as_posix().replace("/", ".")
    for path in PACKAGE.rglob("__init__.py")
    if path.parent != PACKAGE
)


def package_of(module: str) -> str | None:
    """Returns the innermost package that holds a module, as `client.retry`; None for a module at the top."""
    parts = module.split(".")[1:]
    names = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    return next((name for name in names if name in PACKAGES), None)


def imported(folder: Path) -> set[str]:
    """Returns the packages that the files of a folder import, those for types included."""
    modules = {
        node.module
        for path in folder.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("kafka_pubsub.")
    }
    return {package for module in modules if (package := package_of(module)) is not None}


def allowed(package: str) -> set[str]:
    """Returns the packages that an `__init__` names after "May import"."""
    text = (PACKAGE / package.replace(".", "/") / "__init__.py").read_text(encoding="utf-8")
    found = SENTENCE.search(ast.get_docstring(ast.parse(text)) or "")
    assert found is not None, f"{package}/__init__.py doesn't say what it may import"
    return set() if found[1] == "nothing" else set(re.findall(r"`([\w.]+)`", found[1]))


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_imports_what_its_init_says_and_nothing_else(package: str) -> None:
    assert imported(PACKAGE / package.replace(".", "/")) - {package} == allowed(package)
