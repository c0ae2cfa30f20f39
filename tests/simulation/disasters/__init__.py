"""All disasters: the modules of this directory, each with a `DISASTER`."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pkgutil import iter_modules

from tests.simulation.disaster import Disaster

__all__ = ["DISASTERS"]


def _found() -> list[Disaster]:
    names = sorted(found.name for found in iter_modules(__path__))
    return [import_module(f"{__name__}.{name}").DISASTER for name in names]


DISASTERS: Mapping[str, Disaster] = {each.name: each for each in _found()}
