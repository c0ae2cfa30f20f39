"""A real broker for all tests of a run, how `pytest -n auto` spreads them, how hard the property tests search.

Workers: any test may run beside any other, on the same broker. Tests that neighbours must not disturb (a broker
that is killed, a fork, a signal, a count of threads) has a broker or a process of its own, and times are bounds for
a busy machine. Only the tests of a file with a fixture of its own scope stay together, or each worker would make its
own.

Fast and slow: `pytest` runs the fast tests, `pytest -m slow` the rest. SLOW names the rooms and files whose tests break
brokers, start several, need Spark or search for long; a single test elsewhere is marked where it stands. In CI similar
slow tests take turns, a third of them each day (tests/turns.py).

Order (tests/scheduling.py): a single worker takes the quickest tests, so that results show at once; the others take the
slowest, by tests/durations.json, so that no worker is left alone with a slow test at the end.

KAFKA_PUBSUB_HYPOTHESIS=deep searches fifty times longer. In CI the search is the same at every run: a red build
is red again.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer

from kafka_pubsub.local.pytest_plugin import RunningKafka, running_kafka
from tests.apicurio import is_fetched, shared_registry
from tests.scheduling import RECORD, Durations, Scheduling, in_order, recorded
from tests.seeds import DAY
from tests.turns import CHOSEN, of_this_day
from tests.unfinished import Unfinished

# No deadlines: they would measure the machine's other tenants.
settings.register_profile("default", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.register_profile(
    "deep", deadline=None, max_examples=5000, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile(os.environ.get("KAFKA_PUBSUB_HYPOTHESIS", "default"))

# Workers and hundreds of processes read the same modules: they share the compiled files. Where these may not lie
# beside the sources, they lie in pytest's directory.
if sys.dont_write_bytecode:
    compiled = str(Path(__file__).parents[1] / ".pytest_cache" / "compiled")
    os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix = compiled
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False

# Brokers of tests live for seconds or minutes: the optimizing compiler would cost them a third of all their work.
# Its own room for code is too small for Spark: when that is full, nothing is compiled any more.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m")


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningKafka]:
    """A real Kafka: the one at KAFKA_PUBSUB_TEST_BOOTSTRAP, else an ephemeral one for this session."""
    with running_kafka(tmp_path_factory) as broker:
        yield broker


@pytest.fixture(scope="session")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real schema registry for this session: the address of Confluent's REST (`tests/apicurio.py` says more)."""
    if not is_fetched():
        missing = "no schema registry on this machine: `python -m tests.apicurio` fetches it (158 MB)"
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)
    base = tmp_path_factory.getbasetemp()
    # A worker's own directory is below the one of the whole run.
    with shared_registry(
        (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "registry"
    ) as address:
        yield address


#: Folders and files that are slow as a whole, by the beginning of the path.
SLOW = (
    "tests/contract/connect/test_stock.py",
    "tests/faults/",
    "tests/integration/",
    "tests/property/test_hostile_mutations.py",
    "tests/property/test_retry_load.py",
    "tests/property/test_retry_rules.py",
    "tests/simulation/test_answers.py",
    "tests/simulation/test_growth.py",
    "tests/simulation/test_mutations.py",
    "tests/simulation/test_recorded_world.py",
    "tests/spark/",
)
#: The folder of tests on a Docker engine, in neither suite: `pytest -m containers` runs them.
CONTAINERS = "tests/containers/"


def pytest_report_header() -> str:
    turns = "; of similar slow tests those of the day run" if CHOSEN else ""
    return f"seeds of the day: KAFKA_PUBSUB_DAY={DAY}{turns}"


@pytest.hookimpl(tryfirst=True)  # before pytest looks at the marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith(SLOW):
            item.add_marker(pytest.mark.slow)
        if item.nodeid.startswith(CONTAINERS):
            item.add_marker(pytest.mark.containers)
    if CHOSEN:
        _leave_out_other_days(config, items)
    if hasattr(config, "workerinput"):
        items[:] = in_order(items, recorded())


def _leave_out_other_days(config: pytest.Config, items: list[pytest.Item]) -> None:
    slow = [
        item.nodeid
        for item in items
        if item.get_closest_marker("slow") or item.get_closest_marker("containers")
    ]
    left_out = set(slow) - of_this_day(slow)
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in left_out])
    items[:] = [item for item in items if item.nodeid not in left_out]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Three workers a core, because most tests wait: for a broker, a deadline, a process. Slow ones keep two busy."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    # With more workers, all wait for the single broker and the tests' own brokers.
    return min((2 if config.option.markexpr == "slow" else 3) * cores, 8)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling:
    # The order is that of `in_order`, not that of how many tests a file has.
    config.option.loadscopereorder = False
    return Scheduling(config, log)


def pytest_configure(config: pytest.Config) -> None:
    told = os.environ.get(RECORD)
    if told and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Durations(Path(told)))
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Unfinished(config))


def pytest_keyboard_interrupt() -> None:
    """After Ctrl-C a worker closes what is open; execnet would interrupt it again after 5 s, and show where."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
