"""Seeds by the hundred, for workers in other processes (which can't import a `__main__`)."""

from __future__ import annotations

from typing import NamedTuple

from tests.simulation.world import simulate

__all__ = ["SLICE", "Outcome", "run_slice"]

#: Seeds that a worker takes at a time: some seconds of work.
SLICE = 100


class Outcome(NamedTuple):
    """The result of a slice of seeds."""

    deliveries: int
    failures: list[tuple[int, str]]


def run_slice(seeds: range, *, retry: bool = False) -> Outcome:
    """Runs some seeds; never raises."""
    deliveries = 0
    failures = []
    for seed in seeds:
        try:
            deliveries += simulate(seed, retry=retry).deliveries
        except Exception as error:
            failures.append((seed, f"{type(error).__name__}: {error}"))
    return Outcome(deliveries, failures)
