"""spark-submit with our package on a cluster of one master and two workers; an executor is killed meanwhile."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kafka_pubsub import PubSub
from kafka_pubsub.local.pytest_plugin import RunningKafka
from tests.spark.needs import SHORT_LIVED, need_spark

ROOT = Path(__file__).resolve().parents[3]


# Seconds: six JVMs start, one after the other.
@pytest.mark.timeout(900)
def test_a_job_under_spark_submit_survives_the_loss_of_an_executor(
    kafka: RunningKafka, name: str, tmp_path: Path
) -> None:
    need_spark()
    from tests.spark.drivers.scene import entries, kept, logged, publish
    from tests.spark.standalone import HOME, kill_executor, standalone

    zipped = tmp_path / "kafka_pubsub.zip"
    told = subprocess.run(
        [
            sys.executable,
            "-m",
            "kafka_pubsub.cli.main",
            "--json",
            "spark",
            "submit-args",
            "--zip",
            str(zipped),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    arguments = json.loads(told.stdout)["arguments"]
    archive = tmp_path / "archive"
    with standalone(tmp_path) as (master, workers), PubSub(kafka.bootstrap) as ps:
        ps.create_topic(name, partitions=4)
        publish(ps, name, 2_000, None).join(120)
        conf = [
            f"--conf={each}"
            for each in (
                "spark.driver.host=127.0.0.1",
                "spark.sql.shuffle.partitions=2",
                "spark.ui.enabled=false",
                f"spark.driver.extraJavaOptions={SHORT_LIVED}",
                f"spark.executor.extraJavaOptions={SHORT_LIVED}",
            )
        ]
        job = [
            "archive",
            "-b",
            kafka.bootstrap,
            "--topic",
            name,
            "--to",
            str(archive),
            "--max-per-batch",
            "400",
        ]
        driver = subprocess.Popen(
            [str(HOME / "bin" / "spark-submit"), "--master", master, *conf, *arguments, *job, "--json"],
            # From elsewhere: what it needs is in the zip.
            cwd=tmp_path,
            env={
                **os.environ,
                "PYSPARK_PYTHON": sys.executable,
                "SPARK_LOCAL_IP": "127.0.0.1",
                "SPARK_LAUNCHER_OPTS": SHORT_LIVED,
                "PYTHONPATH": "",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        log = archive / "_delta_log"
        until = time.monotonic() + 400
        while driver.poll() is None and entries(log) == 0 and time.monotonic() < until:
            time.sleep(0.05)
        kill_executor(workers[0])
        out, error = driver.communicate(timeout=600)
        assert driver.returncode == 0, error[-4000:]
        assert json.loads(out.splitlines()[-1])["batches"] == 5
        assert kept(archive) == logged(kafka.bootstrap, name)
