"""How a parallel run hands out its tests: a worker shows quick results, no worker is left alone with a long test."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.scheduling import ROOT, Durations, Scheduling, in_order, recorded

#: The first shares a fixture of its module.
SHARED = "tests/unit/house/test_wheel.py"
OTHERS = "tests/unit/house/test_text.py"


def items(*nodeids: str) -> list[Any]:
    return [SimpleNamespace(nodeid=nodeid) for nodeid in nodeids]


def ids(found: list[Any]) -> list[str]:
    return [item.nodeid for item in found]


def test_the_slowest_comes_first_and_unknown_ones_count_as_quick() -> None:
    tests = items(f"{OTHERS}::new", f"{OTHERS}::short", f"{OTHERS}::long")
    seconds = {f"{OTHERS}::short": 1.0, f"{OTHERS}::long": 60.0}
    assert ids(in_order(tests, seconds)) == [f"{OTHERS}::{name}" for name in ("long", "short", "new")]


def test_tests_that_share_a_fixture_stay_together_in_their_order_and_count_as_one() -> None:
    tests = items(f"{SHARED}::b", f"{OTHERS}::long", f"{SHARED}::a")
    seconds = {f"{SHARED}::b": 20.0, f"{SHARED}::a": 25.0, f"{OTHERS}::long": 40.0}
    assert ids(in_order(tests, seconds)) == [f"{SHARED}::b", f"{SHARED}::a", f"{OTHERS}::long"]


def test_the_order_is_the_same_in_whatever_order_tests_were_collected() -> None:
    names = [f"{OTHERS}::{number}" for number in range(20)]
    assert ids(in_order(items(*names), {})) == ids(in_order(items(*reversed(names)), {}))


def test_of_equally_quick_tests_those_without_a_broker_are_seen_first() -> None:
    last = in_order(items(f"{OTHERS}::quick", "tests/contract/test_admin.py::test_it"), {})[-1]
    assert last.nodeid == f"{OTHERS}::quick"


class Worker:
    """Stands for a process of xdist; runs nothing by itself."""

    shutting_down = False

    def __init__(self, tests: list[str]) -> None:
        self.gateway = SimpleNamespace(id="gw")
        self.tests = tests
        self.waiting: list[str] = []
        self.done: list[str] = []

    def send_runtest_some(self, indices: list[int]) -> None:
        self.waiting += [self.tests[index] for index in indices]

    def shutdown(self) -> None:
        self.shutting_down = True


def play(seconds: dict[str, float], workers: int) -> list[tuple[Worker, float]]:
    """The workers with the time at which each had nothing left, on a machine that does nothing else."""
    tests = ids(in_order(items(*seconds), seconds))
    config = SimpleNamespace(
        getvalue=lambda name: ["popen"] * workers if name == "tx" else None,
        option=SimpleNamespace(loadscopereorder=False),
        rootpath=Path(),
    )
    scheduling = Scheduling(config, None)
    made = [Worker(tests) for _ in range(workers)]
    for worker in made:
        scheduling.add_node(worker)
    for worker in made:
        scheduling.add_node_collection(worker, tests)
    scheduling.schedule()
    free = dict.fromkeys(made, 0.0)
    while busy := [worker for worker in made if worker.waiting]:
        worker = min(busy, key=lambda each: free[each] + seconds[each.waiting[0]])
        test = worker.waiting.pop(0)
        free[worker] += seconds[test]
        worker.done.append(test)
        scheduling.mark_test_complete(worker, tests.index(test))
    return list(free.items())


def test_the_first_worker_begins_with_the_quickest_and_all_end_together() -> None:
    seconds = {f"{OTHERS}::{number}": number / 10 for number in range(1, 400)}
    told = play(seconds, workers=4)
    assert sorted(test for worker, _ in told for test in worker.done) == sorted(seconds)
    (first, _), *others = told
    assert [seconds[test] for test in first.done[:50]] == [number / 10 for number in range(1, 51)]
    assert {seconds[worker.done[0]] for worker, _ in others} == {39.9, 39.8, 39.7}
    ends = [end for _, end in told]
    # The middle test's time, once that runs and once that waits behind it.
    assert max(ends) - min(ends) <= 2 * 20


def test_a_run_adds_its_seconds_to_the_file(tmp_path: Path) -> None:
    file = tmp_path / "durations.json"
    gone = "tests/unit/house/test_gone.py::test_it"
    known = {f"{OTHERS}::kept": 7, f"{OTHERS}::quicker": 3, f"{OTHERS}::changed": 3, gone: 90}
    file.write_text(json.dumps(known))
    durations = Durations(file)
    for name, seconds in (("quicker", 0.4), ("changed", 1.2), ("changed", 4.4), ("new", 2.0)):
        durations.pytest_runtest_logreport(report(f"{OTHERS}::{name}", seconds))
    durations.pytest_sessionfinish()
    assert recorded(file) == {f"{OTHERS}::changed": 6, f"{OTHERS}::kept": 7, f"{OTHERS}::new": 2}


def report(nodeid: str, seconds: float) -> pytest.TestReport:
    return pytest.TestReport(nodeid, ("", 0, ""), {}, "passed", None, "call", duration=seconds)


def test_without_a_file_nothing_is_known(tmp_path: Path) -> None:
    assert recorded(tmp_path / "none.json") == {}


def test_the_recorded_tests_exist() -> None:
    gone = [nodeid for nodeid in recorded() if not is_defined(nodeid)]
    assert gone == []


def is_defined(nodeid: str) -> bool:
    """Whether the file of a test defines this test."""
    file, _, name = nodeid.partition("::")
    defined = name.partition("::")[0].partition("[")[0]  # a class, if the test is a method
    path = ROOT / file
    return path.is_file() and bool(re.search(rf"\b{defined}\b", path.read_text(encoding="utf-8")))
