"""One real broker for all tests of a run, how `pytest -n auto` spreads them, how hard the property tests search.

Workers: any test may run beside any other, on the same broker. What must not be disturbed by neighbours (a broker
that is killed, a fork, a signal, a count of threads) has a broker or a process of its own, and times are bounds for
a busy machine. Only the tests of a file with a fixture of its own scope stay together, or each worker would make one.

Fast and slow: `pytest` runs what is fast, `pytest -m slow` the rest. SLOW names the rooms and files whose tests break
brokers, start several, need Spark or search for long; a single test elsewhere is marked where it stands.

KAFKA_PUBSUB_HYPOTHESIS=deep searches fifty times longer. In CI the search is the same at every run: a red build
is red again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from kafka_pubsub.local.pytest_plugin import RunningKafka, running_kafka

# No deadlines: they would measure the machine's other tenants.
settings.register_profile("default", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.register_profile(
    "deep", deadline=None, max_examples=5000, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile(os.environ.get("KAFKA_PUBSUB_HYPOTHESIS", "default"))

# Brokers of tests live for seconds or minutes: what the optimizing compiler costs them is a third of all their work.
# Its own room for code is too small for Spark: when that is full, nothing is compiled any more.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m")


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningKafka]:
    """A real Kafka: the one at KAFKA_PUBSUB_TEST_BOOTSTRAP, else an ephemeral one for this session."""
    with running_kafka(tmp_path_factory) as broker:
        yield broker


#: What is slow as a whole, by the beginning of its path.
SLOW = (
    "tests/faults/",
    "tests/integration/",
    "tests/property/test_retry_load.py",
    "tests/property/test_retry_rules.py",
    "tests/simulation/test_answers.py",
    "tests/simulation/test_growth.py",
    "tests/simulation/test_mutations.py",
    "tests/simulation/test_recorded_world.py",
    "tests/spark/",
)

#: The rooms whose tests take longest come first, so that no worker is left alone with one of them at the end.
LONGEST_FIRST = [
    "tests/simulation/test_simulation.py",
    "tests/spark",
    "tests/faults",
    "tests/integration",
    "tests/simulation",
    "tests/checker",
    "tests/acceptance",
    "tests/contract",
    "tests/property",
]

#: Their tests share one session, which takes longer to start than most of them to run; so one worker has them all. Two
#: such groups take about the same time; all in one would be what everybody waits for at the end.
ONE_SPARK = ["tests/spark/session/test_a", "tests/spark/session/"]


@pytest.hookimpl(tryfirst=True)  # before pytest looks at the marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith(SLOW):
            item.add_marker(pytest.mark.slow)
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: _rank(item.nodeid))


def _rank(nodeid: str) -> int:
    return next(
        (rank for rank, room in enumerate(LONGEST_FIRST) if nodeid.startswith(room)), len(LONGEST_FIRST)
    )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Two workers a core, because most tests wait: for a broker, a deadline, a process."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    # Above that the one broker and the tests' own ones are what everybody waits for.
    return min(2 * cores, 8)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    # The order is ours (LONGEST_FIRST), not that of how many tests a file has.
    config.option.loadscopereorder = False
    return _ByTest(config, log)


class _ByTest(LoadScopeScheduling):  # type: ignore[misc]  # it has no types
    """Gives each worker one test after the other; a file whose tests share a fixture is given as a whole.

    The marks of `--dist=loadgroup` would change the tests' names, so that `--last-failed` can't find them again.
    """

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        for group in ONE_SPARK:
            if file.startswith(group):
                return group
        return file if _shares_fixtures(file) else nodeid


@cache
def _shares_fixtures(file: str) -> bool:
    return 'scope="module"' in (Path(__file__).parents[1] / file).read_text(encoding="utf-8")
