"""No module needs, by any way round, a module that needs the first: each can be read after its imports.

Imports for type checkers only count as well: a reader follows them.
"""

from __future__ import annotations

import graphlib

import grimp
import pytest


def circle(graph: grimp.ImportGraph) -> list[str]:
    """The modules of a circle; empty if there is none.

    A package's own list of public names is left out: a name's module is loaded when the name is used.
    """
    modules = [each for each in graph.modules if not graph.find_children(each)]
    imports = {each: graph.find_modules_directly_imported_by(each) & set(modules) for each in modules}
    try:
        graphlib.TopologicalSorter(imports).prepare()
    except graphlib.CycleError as error:
        return list(error.args[1])
    return []


def folder_of(module: str, graph: grimp.ImportGraph) -> str:
    """Returns the folder in which a module lies; a module at the top stands for itself."""
    inside = bool(graph.find_children(module)) or module.count(".") == 1
    return module if inside else module.rpartition(".")[0]


def folders(graph: grimp.ImportGraph) -> grimp.ImportGraph:
    """Returns which folders import which others."""
    found = grimp.ImportGraph()
    for module in graph.modules:
        found.add_module(folder_of(module, graph).replace(".", "/"))
    for importer in graph.modules:
        for imported in graph.find_modules_directly_imported_by(importer):
            names = [folder_of(each, graph).replace(".", "/") for each in (importer, imported)]
            if names[0] != names[1]:
                found.add_import(importer=names[0], imported=names[1])
    return found


def test_no_folder_is_part_of_a_circle() -> None:
    assert circle(folders(grimp.build_graph("kafka_pubsub", cache_dir=None))) == []


def test_a_circle_of_folders_is_found() -> None:
    graph = grimp.ImportGraph()
    for module in ("a", "a.b", "a.b.one", "a.b.two", "a.c", "a.c.one", "a.c.two"):
        graph.add_module(module)
    graph.add_import(importer="a.b.one", imported="a.c.two")
    assert circle(folders(graph)) == []
    graph.add_import(importer="a.c.one", imported="a.b.two")
    assert set(circle(folders(graph))) == {"a/b", "a/c"}


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
