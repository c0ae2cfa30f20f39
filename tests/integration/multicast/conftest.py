"""Fixtures: a broker of each file's own, and causal topics."""

from __future__ import annotations

from tests.causal import broker, names, other, ps

__all__ = ["broker", "names", "other", "ps"]
