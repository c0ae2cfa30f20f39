"""Fixtures: those of tests/unit/dead_letters."""

from __future__ import annotations

from tests.unit.dead_letters.conftest import _built, sub

__all__ = ["_built", "sub"]
