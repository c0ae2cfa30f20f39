"""The acceptance tests of order, delays, lanes and multicast on three brokers in containers, as they are."""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree
from pathlib import Path

import pytest

from tests.containers.cluster import ContainerCluster
from tests.containers.engine import ROOT

#: By subject: the files, which of their tests (as for `pytest -k`), and how many passed when this was written.
SUBJECTS = {
    "ordering": (("ordering_criteria", "ordering_examples", "ordering_requirements"), "test", 30),
    # How late a message is at home is measured where nothing else runs.
    "delays": (("delays",), "not within_a_second", 10),
    # The others count how soon a lane is seen. Three brokers on two cores don't always answer within the second after
    # which a lane isn't waited for, and consumers see a transient message when its copies are made, after its answer.
    "lanes": (("lanes",), "finished_out_of_turn or lost_or_doubled or priority_counts", 3),
    "multicast": (("multicast",), "test", 5),
}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("subject", SUBJECTS)
def test_the_promises_hold_on_three_brokers(subject: str, brokers: ContainerCluster, tmp_path: Path) -> None:
    names, chosen, least = SUBJECTS[subject]
    files = [f"tests/acceptance/test_{name}.py" for name in names]
    report = tmp_path / "report.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", f"--junitxml={report}", "-k", chosen, *files]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        command,
        check=False,
        cwd=ROOT,
        env={**inherited, "KAFKA_PUBSUB_TEST_BOOTSTRAP": brokers.bootstrap},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    suite = next(xml.etree.ElementTree.parse(report).getroot().iter("testsuite"))
    assert int(suite.get("skipped", 0)) == 0
    assert int(suite.get("tests", 0)) >= least
