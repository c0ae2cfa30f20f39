"""The examples of the documentation: whoever copies an example gets Python that compiles and names that exist.

Rule: a page is read from its top, so the imports of an example are there for the examples below.
"""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import pytest

import kafka_pubsub
from tests.unit.house.repository import ROOT, relative

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
EXAMPLE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
#: The name of a package as users have it, and the name in a clone.
OURS = {"kafka_pubsub": "kafka_pubsub", "kafka_pubsub_spark": "spark"}


def examples(page: Path) -> list[ast.Module]:
    text = page.read_text(encoding="utf-8")
    found = []
    for match in EXAMPLE.finditer(text):
        before = text.count("\n", 0, match.start(1))
        try:
            found.append(ast.parse("\n" * before + match[1], relative(page)))
        except SyntaxError as error:
            pytest.fail(f"{relative(page)}:{error.lineno}: {error.msg}")
    return found


def imported(example: ast.Module) -> list[tuple[int, str, str]]:
    """Line, module and name of the imports from our packages."""
    return [
        (node.lineno, node.module, alias.name)
        for node in ast.walk(example)
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in OURS
        for alias in node.names
    ]


def used(example: ast.Module) -> list[tuple[int, str]]:
    """Line and name of what it uses of our public names."""
    public = set(kafka_pubsub.__all__)
    return [
        (node.lineno, node.id)
        for node in ast.walk(example)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in public
    ]


def exists(module: str, name: str) -> bool:
    first, _, rest = module.partition(".")
    package = importlib.import_module(".".join(filter(None, (OURS[first], rest))))
    return name in getattr(package, "__all__", dir(package))


def test_there_are_examples() -> None:
    assert sum(len(examples(page)) for page in PAGES) >= 10


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_examples_import_what_exists_and_use_what_they_imported(page: Path) -> None:
    wrong, known = [], set()
    for example in examples(page):
        for line, module, name in imported(example):
            known.add(name)
            if not exists(module, name):
                wrong.append(f"{line}: {module} has no {name}")
        wrong += [f"{line}: {name} isn't imported" for line, name in used(example) if name not in known]
    assert wrong == []
