"""End to end, in short: publish while a subscriber nacks, archive meanwhile, kill the driver twice, audit, plant."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_pubsub.local.pytest_plugin import RunningKafka
from tests.spark.needs import need_spark


# Seconds: six drivers start, each some seconds alone and half a minute on a machine that others use.
@pytest.mark.timeout(900)
def test_an_archive_survives_kills_and_an_audit_finds_what_is_planted(
    kafka: RunningKafka, name: str, tmp_path: Path
) -> None:
    need_spark()
    from tests.spark.drivers.scene import play

    play(kafka.bootstrap, name, tmp_path, messages=3_000, kills=2, rate=150)
