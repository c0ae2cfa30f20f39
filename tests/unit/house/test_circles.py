"""No module needs, by any way round, a module that needs it: each can be read after those that it imports.

Imports for type checkers only count as well: they are what a reader follows.
"""

from __future__ import annotations

import graphlib

import grimp
import pytest


def circle(graph: grimp.ImportGraph) -> list[str]:
    """The modules of one circle; empty if there is none.

    A package's own list of public names is left out: a name's module is loaded when the name is used.
    """
    modules = [each for each in graph.modules if not graph.find_children(each)]
    imports = {each: graph.find_modules_directly_imported_by(each) & set(modules) for each in modules}
    try:
        graphlib.TopologicalSorter(imports).prepare()
    except graphlib.CycleError as error:
        return list(error.args[1])
    return []


@pytest.mark.parametrize("package", ["kafka_pubsub", "spark"])
def test_no_module_is_part_of_a_circle(package: str) -> None:
    assert circle(grimp.build_graph(package, cache_dir=None)) == []


def test_a_circle_is_found() -> None:
    graph = grimp.ImportGraph()
    for module in ("a", "b", "c"):
        graph.add_module(module)
    for importer, imported in (("a", "b"), ("b", "c"), ("c", "b")):
        graph.add_import(importer=importer, imported=imported)
    assert set(circle(graph)) == {"b", "c"}
