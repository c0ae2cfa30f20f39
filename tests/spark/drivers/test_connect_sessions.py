"""The job `sessions` over Spark Connect: pyspark 4.1 runs it, and with 4.0 it is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from kafka_pubsub import PubSub
from kafka_pubsub.local.pytest_plugin import RunningKafka
from tests.spark.drivers.group import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVENTS = 6


def test_sessions_over_connect(spark: SparkSession, kafka: RunningKafka, name: str, tmp_path: Path) -> None:
    from spark.spark_session import bundle, connect_options
    from tests.spark.connect import connect_server

    target = f"{name}-to"
    with PubSub(kafka.bootstrap) as ps:
        ps.create_topic(name, partitions=2)
        ps.create_topic(target, partitions=1)
        for number in range(EVENTS):
            key, at = f"ann:{number}", {"at": str(1_800_000_000 + number * 60)}
            ps.topic(name).publish(b'{"type": "login"}', ordering_key=key, attributes=at).result(30)
    zipped = bundle(tmp_path / "kafka_pubsub.zip")
    packages, _, *options = connect_options(spark.version, zipped)
    assert packages == "--packages"
    options += ["--jars", spark.sparkContext.getConf().get("spark.jars") or ""]
    command = [sys.executable, "-m", "kafka_pubsub.cli.main", "--json", "-b", kafka.bootstrap]
    command += ["spark", "run", "sessions", "--topic", name, "--to", target, "--gap", "10"]
    command += ["--time", "timestamp_seconds(cast(attributes['at'] AS bigint))", "--late", "1 second"]
    command += ["--checkpoint", str(tmp_path / "sessions")]
    with connect_server(tmp_path, options, zipped) as url:
        ran = subprocess.run(
            [*command, "--master", url],
            cwd=ROOT,
            env={**os.environ, "PATH": "/nowhere", "JAVA_HOME": "/nowhere", "SPARK_HOME": "/nowhere"},
            capture_output=True,
            text=True,
            check=False,
        )
    if spark.version.startswith("4.0"):
        assert ran.returncode != 0
        assert "lacks in 4.0: take pyspark 4.1" in ran.stdout + ran.stderr
        return
    assert ran.returncode == 0, ran.stderr[-4000:]
    # The watermark hasn't passed the end of the newest event's session.
    assert json.loads(ran.stdout)["sessions"] == EVENTS - 1
