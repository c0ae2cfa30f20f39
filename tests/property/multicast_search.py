"""A long search for a broken promise of causal multicast: `python -m tests.property.multicast_search --minutes 60`.

Three senders, three topics, two messages each, crashes between any two steps; each schedule beside the oracle. Ends
with 0, or with 1 and the seed of the schedule that broke a promise. A million schedules take about 70 minutes.
"""

from __future__ import annotations

import argparse
import sys
import time

from tests.property.multicast_oracle import run_beside_oracle

__all__ = ["play", "search"]


def play(seed: int) -> None:
    """Plays a single schedule beside the oracle; a failure says the seed."""
    try:
        run_beside_oracle(seed, topics=3, senders=3, messages=6, each=2, crashes=0.1 * (1 + seed % 5))
    except (AssertionError, KeyError) as error:
        raise AssertionError(f"seed {seed}: {error}") from error


def search(first: int, schedules: int, seconds: float) -> int:
    """Plays the schedules of the seeds from `first` on, for that long at most; returns how many it played."""
    end = time.monotonic() + seconds
    for number in range(schedules):
        if time.monotonic() > end:
            return number
        play(first + number)
    return schedules


def main() -> int:
    """Searches as the command line says; the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--seed", type=int, default=0, help="the first schedule's seed")
    parser.add_argument("--schedules", type=int, default=10**6, help="how many schedules to play")
    parser.add_argument("--minutes", type=float, default=60, help="when to stop at the latest")
    options = parser.parse_args()
    try:
        count = search(options.seed, options.schedules, options.minutes * 60)
    except AssertionError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{count} schedules from seed {options.seed}: every promise holds")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
