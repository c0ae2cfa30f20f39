"""End to end, in short: publish while a subscriber nacks, archive meanwhile, kill the driver twice, audit, plant.

The drivers that are killed are processes of their own; the others run in the same session.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kafka_pubsub.local.pytest_plugin import RunningKafka
from tests.spark.session.support import Runner

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# Seconds: drivers start, some seconds each alone and a minute on a machine that others use.
@pytest.mark.timeout(1200)
def test_an_archive_survives_kills_and_an_audit_finds_what_is_planted(
    spark: SparkSession, kafka: RunningKafka, name: str, tmp_path: Path
) -> None:
    from tests.spark.drivers.scene import play

    runner = Runner(spark, kafka.bootstrap)

    def run(job: str, *arguments: str) -> tuple[bool, dict[str, Any]]:
        outcome = runner.typed(job, list(arguments))
        return outcome.ok, dict(outcome.facts)

    # The jars of this session; fetching them again takes each driver a quarter of a minute.
    jars = spark.sparkContext.getConf().get("spark.jars") or ""
    environment = {"KAFKA_PUBSUB_SPARK_PACKAGES": "", "PYSPARK_SUBMIT_ARGS": f"--jars {jars} pyspark-shell"}
    play(kafka.bootstrap, name, tmp_path, messages=3_000, rate=100, run=run, environment=environment)
