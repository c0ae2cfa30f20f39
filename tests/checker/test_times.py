"""Judgements that need time: an ack is late by the time in which its owner ran, and could hear from the log."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kafka_pubsub.history.history import HistoryFile, fingerprint
from tests.checker.check import check

SECOND = 10**9
PID = 7


def stands_still(driver: HistoryFile, begins: bool) -> None:
    (driver.stop if begins else driver.cont)(PID)


def hears_nothing(driver: HistoryFile, begins: bool) -> None:
    if begins:
        driver.fault("partition", [PID])
    else:
        driver.mend("partition")


def nothing(driver: HistoryFile, begins: bool) -> None: ...


@pytest.mark.parametrize(
    ("trouble", "found"), [(stands_still, False), (hears_nothing, False), (nothing, True)]
)
def test_an_ack_is_late_only_by_the_time_in_which_it_could_have_been_committed(
    trouble: Callable[[HistoryFile, bool], None], found: bool, tmp_path: Path
) -> None:
    now = [SECOND]
    paths = [tmp_path / f"{name}.jsonl" for name in ("publisher", "driver", "subscriber")]

    def file(number: int, role: str, pid: int) -> HistoryFile:
        return HistoryFile(
            paths[number],
            role=role,
            topic="t",
            subscription=None if role == "publisher" else "s",
            pid=pid,
            host="here",
            monotonic_ns=lambda: now[0],
        )

    publisher, driver, subscriber = file(0, "publisher", 1), file(1, "driver", 2), file(2, "subscriber", PID)
    driver.subscribe({0: 0})
    sha = fingerprint(b"k", b"body", {})
    publisher.send(0, "k", sha)
    publisher.stored(0, 0, 0)
    subscriber.assign(0, 1, (0, ()), None, 0)
    subscriber.delivered(0, 0, 1, 1, sha)
    subscriber.ack(0, 0, 1, 1)
    subscriber.handler_end(0, 0, 1)
    now[0] += SECOND // 2
    trouble(driver, True)
    now[0] += 8 * SECOND
    trouble(driver, False)
    now[0] += SECOND // 10
    subscriber.revoke(0, 1, lost=False)
    for each in (publisher, driver, subscriber):
        each.close()
    assert ("lag" in check(paths).counts) is found
