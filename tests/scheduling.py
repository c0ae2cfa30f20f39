"""In which order `pytest -n` hands tests to its workers.

A worker takes the quickest unit that is left, the others the slowest, until they meet. A unit is a test, or all tests
that share a fixture. tests/durations.json holds the seconds of each test that takes a second or more, by `just
durations`.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

import pytest
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

__all__ = ["RECORD", "Durations", "Scheduling", "in_order", "recorded"]

ROOT = Path(__file__).parents[1]
DURATIONS = ROOT / "tests" / "durations.json"
#: The variable that names a file to which a run adds the seconds of its tests.
RECORD = "KAFKA_PUBSUB_DURATIONS"
#: Seconds of a test that the file doesn't name.
QUICK = 0.1

#: Their tests share one session, which takes longer to start than most of them to run; so a worker has a whole group.
#: The groups take about the same time; a run would wait at its end for a group of all.
ONE_SPARK = (
    "tests/spark/session/test_a*",
    "tests/spark/session/test_[b-l]*",
    "tests/spark/session/*",
    "tests/spark/drivers/*",
)


def unit_of(nodeid: str) -> str:
    """The unit that a test belongs to."""
    file = nodeid.partition("::")[0]
    for group in ONE_SPARK:
        if fnmatchcase(file, group):
            return group
    return file if _shares_fixtures(file) else nodeid


@cache
def _shares_fixtures(file: str) -> bool:
    source = ROOT / file
    return source.is_file() and 'scope="module"' in source.read_text(encoding="utf-8")


def in_order(items: Iterable[pytest.Item], seconds: Mapping[str, float]) -> list[pytest.Item]:
    """The slowest unit first. Of equally quick units those without a broker come last, and so are seen first."""
    whole: defaultdict[str, float] = defaultdict(float)
    tests = list(items)
    for item in tests:
        whole[unit_of(item.nodeid)] += seconds.get(item.nodeid, QUICK)

    def place(item: pytest.Item) -> tuple[float, bool, str]:
        unit = unit_of(item.nodeid)
        return -whole[unit], unit.startswith("tests/unit/"), unit

    return sorted(tests, key=place)


class Scheduling(LoadScopeScheduling):  # type: ignore[misc]  # it has no types
    """Gives each worker units in turn.

    The marks of `--dist=loadgroup` would change the tests' names, so that `--last-failed` can't find them again.
    """

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)

    def _assign_work_unit(self, node: WorkerController) -> None:
        if node is self.nodes[0]:
            self.workqueue.move_to_end(next(reversed(self.workqueue)), last=False)
        super()._assign_work_unit(node)


class Durations:
    """Adds the seconds of the tests of this run to a file, fixtures included."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid] += report.duration

    def pytest_sessionfinish(self) -> None:
        known = recorded(self._file)
        known.update({nodeid: round(seconds) for nodeid, seconds in self._seconds.items()})
        kept = {
            nodeid: seconds
            for nodeid, seconds in sorted(known.items())
            if seconds >= 1 and (ROOT / nodeid.partition("::")[0]).exists()
        }
        self._file.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


def recorded(file: Path = DURATIONS) -> dict[str, float]:
    """The seconds of tests by node id. Empty: nothing is recorded."""
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
