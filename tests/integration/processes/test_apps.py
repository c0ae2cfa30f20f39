"""`kafka-pubsub run` while messages flow: killed, reloaded and stopped, judged by the histories of its processes.

Every test ends with the checker: nothing lost, no key out of order, every redelivery with a cause, and what a handler
gave up isn't given to a handler again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_pubsub.local.pytest_plugin import RunningKafka
from tests.integration.processes.app_run import AppRun
from tests.integration.processes.company import PATIENCE, Company
from tests.integration.processes.test_members import proven
from tests.support import until

pytestmark = pytest.mark.timeout(600)

#: Messages a second, and processes.
RATE, WORKERS = 300, 3
#: Bodies that no handler gets: the parameter is a number.
MISFITS = [b"many", b"[]", b'{"number": 1}']


@pytest.fixture
def company(kafka: RunningKafka, tmp_path: Path) -> Iterator[Company]:
    with Company(kafka.bootstrap, tmp_path, dead_letters=True) as company:
        yield company


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "shop"
    folder.mkdir()
    return folder


def publish_misfits(company: Company) -> None:
    """Under keys of other messages, which wait for them."""
    for number, body in enumerate(MISFITS):
        company.topic.publish(body, ordering_key=f"key-{number}")
    company.topic.flush(PATIENCE)


def test_reloads_and_sigterm_under_load_lose_nothing_and_repeat_nothing(
    company: Company, folder: Path
) -> None:
    options = "--workers", str(WORKERS), "--grace", "60s"
    company.publish(RATE, keys=100)
    with AppRun(company, folder, *options, "--reload") as run:
        before = run.wait_until_busy(WORKERS)
        publish_misfits(company)
        run.module.write_text(run.module.read_text() + "\n# changed\n")
        os.utime(run.module)
        until(lambda: len(run.started()) == 2 * WORKERS, "all processes started anew", PATIENCE)
        after = run.wait_until_busy(WORKERS)
        assert not set(before) & set(after)
        said = run.end()
        assert "all processes start anew" in said
        assert "Traceback" in said, "the errors of the bank are in the log"
    with AppRun(company, folder, *options) as run:
        run.wait_until_busy(WORKERS)
        company.enough()
        company.settle()
        run.end()

    bodies = [letter.data for letter in company.subscription.dead_letters()]
    nacks = len(list(company.told("nack")))
    acked = {(each["partition"], each["offset"]) for each in company.told("ack")}
    counts = proven(company.close())
    # Processes that ended in good order had finished what their handlers had begun, and each message ended once.
    assert counts["deliveries"] == counts["acks"] + nacks
    assert counts["messages"] == len(acked) + len(bodies)
    # What is acked just when its partition goes to another process comes there again.
    assert counts["acks"] - len(acked) <= counts.get("redelivered_revoke", 0)
    assert nacks > counts["rejected"] >= len(bodies) > 20
    assert len(bodies) == len(set(bodies))
    assert set(MISFITS) <= set(bodies)
    assert all(int(body) % 50 == 7 for body in bodies if body not in MISFITS)


def test_processes_that_are_killed_and_a_parent_that_is_killed_lose_nothing(
    company: Company, folder: Path
) -> None:
    company.publish(RATE, keys=100)
    with AppRun(company, folder, "--workers", str(WORKERS)) as run:
        first, _, third = run.wait_until_busy(WORKERS)
        company.kill_process(third)
        company.kill_process(first)
        left = run.wait_until_busy(WORKERS)
        assert not {first, third} & set(left)
        assert run.said().count("ended with signal 9") == 2
        run.process.kill()
        run.process.wait()
        until(
            lambda: all(any(company.told("close", pid)) for pid in left),
            "the processes without a parent have ended in good order",
            PATIENCE,
        )
    with AppRun(company, folder) as run:
        run.wait_until_busy(1)
        company.enough()
        company.settle()
        run.end()
    counts = proven(company.close())
    # In flight or uncommitted, of two processes that got 100 messages a second each.
    assert 0 < counts["redelivered_crash"] < 500
    assert counts["rejected"] > 10
