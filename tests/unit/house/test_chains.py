"""No module reaches two dots into an object of another one: `a.b.c.d` stands nowhere, whatever `a` is.

What an object holds is its own: the first dot of `self.a.b.c` isn't counted.
"""

from __future__ import annotations

import ast

from tests.unit.house.repository import PACKAGE, python_files, relative

#: Dots after the first name that are too many, and after `self`.
MOST, MOST_OF_SELF = 2, 3


def chains(source: str) -> list[str]:
    """Returns the chains that are too long; a module that was imported as such isn't an object."""
    tree = ast.parse(source)
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import)]
    modules = {each.asname or each.name.partition(".")[0] for node in imports for each in node.names}
    inside = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute) or id(node) in inside:
            continue
        names = ast.unparse(node).split(".")
        most = MOST_OF_SELF if names[0] == "self" else MOST
        if all(each.isidentifier() for each in names) and names[0] not in modules and len(names) > most + 1:
            found.append(".".join(names))
    return found


def test_no_chain_is_too_long() -> None:
    package = (path for path in python_files() if path.is_relative_to(PACKAGE))
    found = {relative(path): some for path in package if (some := chains(path.read_text(encoding="utf-8")))}
    assert found == {}, "give the object in the middle a name, or a method that says what is wanted"


def test_chains_are_found() -> None:
    source = """
import os
self.a.b.c
self.a.b.c.d()
a.b.c
a.b.c.d
a.b().c.d
os.path.sep.join
for each in some: print(each.a.b.c[0].d)
"""
    assert chains(source) == ["a.b.c.d", "self.a.b.c.d", "each.a.b.c"]
