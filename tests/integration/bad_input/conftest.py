"""Fixtures: those of the acceptance tests."""

from __future__ import annotations

from tests.acceptance.conftest import log, ps, room

__all__ = ["log", "ps", "room"]
