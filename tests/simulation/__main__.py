"""Runs as many seeds as told: `python -m tests.simulation --seeds 1000 --from 0`; `--seed N --trace` tells a story."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
import traceback
from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from tests.simulation.slices import SLICE, Outcome, run_slice
from tests.simulation.world import simulate


def slices(first: int, count: int) -> Iterator[range]:
    """The seeds in slices."""
    for start in range(first, first + count, SLICE):
        yield range(start, min(start + SLICE, first + count))


def run_many(first: int, count: int, jobs: int, *, retry: bool = False) -> int:
    """Runs seeds in `jobs` processes; returns how many broke a promise."""
    began = told = time.monotonic()
    done = deliveries = failed = 0
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        outcomes: Iterable[Outcome] = pool.imap_unordered(
            partial(run_slice, retry=retry), slices(first, count)
        )
        for outcome in outcomes:
            done = min(count, done + SLICE)
            deliveries += outcome.deliveries
            failed += len(outcome.failures)
            for seed, text in outcome.failures:
                print(f"seed {seed}: {text}", flush=True)
            if time.monotonic() - told > 5 or done == count:
                told = time.monotonic()
                rate = done / (told - began)
                print(
                    f"{done} of {count} seeds, {rate:.0f}/s, {deliveries} deliveries, {failed} failed",
                    flush=True,
                )
    return failed


def run_one(seed: int, *, trace: bool, retry: bool = False) -> int:
    """Tells a seed's story; 1 if the seed broke a promise."""
    try:
        story = simulate(seed, print if trace else None, retry=retry)
    except Exception:
        traceback.print_exc(file=sys.stdout)
        return 1
    print(story)
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=2000, help="how many seeds to run")
    parser.add_argument("--from", type=int, default=0, dest="first", help="the first one")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes to run them in")
    parser.add_argument("--seed", type=int, help="run this one seed only")
    parser.add_argument("--trace", action="store_true", help="with --seed: print what happens, step by step")
    parser.add_argument("--retry", action="store_true", help="worlds with troubles of the retry topic")
    given = parser.parse_args(arguments)
    if given.seed is not None:
        return run_one(given.seed, trace=given.trace, retry=given.retry)
    return 1 if run_many(given.first, given.seeds, given.jobs, retry=given.retry) else 0


if __name__ == "__main__":
    sys.exit(main())
