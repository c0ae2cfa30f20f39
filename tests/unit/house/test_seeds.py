"""Searches take fixed seeds and seeds of the day, which can be had again; a deep run takes more of both."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.unit.house.repository import ROOT

TOLD = """
import json
from tests.seeds import DAY, fixed, of_the_day
print(json.dumps([DAY, list(fixed(2, first=5)), list(of_the_day(2)), len(fixed(3)), len(of_the_day(3))]))
"""


def told(**settings: str) -> tuple[int, list[int], list[int], int, int]:
    ours = {name: value for name, value in os.environ.items() if not name.startswith("KAFKA_PUBSUB_D")}
    done = subprocess.run(
        [sys.executable, "-c", TOLD], cwd=ROOT, env={**ours, **settings}, capture_output=True, check=True
    )
    day, few, today, some, more = json.loads(done.stdout)
    return day, few, today, some, more


def test_a_day_that_is_named_brings_its_seeds_back() -> None:
    day, few, today, *counts = told(KAFKA_PUBSUB_DAY="20261125")
    assert (day, few, today, counts) == (20261125, [5, 6], [20261125000000, 20261125000001], [3, 3])


def test_without_a_name_it_is_today() -> None:
    day, _, today, *_ = told()
    assert 20260101 < day < 21000101
    assert today[0] == day * 1_000_000


def test_a_deep_run_takes_ten_times_as_many() -> None:
    assert told(KAFKA_PUBSUB_DEEP="1")[3:] == (30, 30)


def test_each_run_prints_its_day(pytestconfig: pytest.Config) -> None:
    told = pytestconfig.hook.pytest_report_header(config=pytestconfig, start_path=ROOT)
    assert f"seeds of the day: KAFKA_PUBSUB_DAY={os.environ['KAFKA_PUBSUB_DAY']}" in str(told)
