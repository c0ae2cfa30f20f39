"""spark-submit on a cluster of a master and two workers; an executor is killed meanwhile.

The driver stands where a cluster manager puts it with `--deploy-mode cluster`: in a directory with the zip and the file
to start, with a Python that has nothing but Spark. Spark itself takes that option for Python on YARN and Kubernetes
only, not on its standalone cluster.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

from kafka_pubsub import PubSub
from kafka_pubsub.local.pytest_plugin import RunningKafka
from tests.spark.needs import SHORT_LIVED, need_spark

ROOT = Path(__file__).resolve().parents[3]


def submitted_from_a_wheel(submitting: Path, container: Path) -> list[str]:
    """The files of spark-submit, as a cluster manager puts them beside a driver: the zip, and the file to start.

    Both come from a wheel in a directory that is gone when this returns.
    """
    submitting.mkdir()
    container.mkdir()
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(submitting)]
    subprocess.run(build, cwd=ROOT, capture_output=True, check=True)
    (wheel,) = submitting.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(submitting / "installed")
    command = [sys.executable, "-m", "kafka_pubsub.cli.main", "--json", "spark", "submit-args"]
    told = subprocess.run(
        [*command, "--zip", "kafka_pubsub.zip"],
        cwd=submitting,
        env={**os.environ, "PYTHONPATH": str(submitting / "installed")},
        capture_output=True,
        text=True,
        check=True,
    )
    *options, zipped, start = json.loads(told.stdout)["arguments"]
    assert Path(start).parts[-2:] == ("kafka_pubsub_spark", "submit.py")
    shutil.copy(submitting / zipped, container)
    shutil.copy(start, container)
    shutil.rmtree(submitting)
    return [*options, "kafka_pubsub.zip", "submit.py"]


# Seconds: six JVMs start, in turn.
@pytest.mark.timeout(900)
def test_a_job_under_spark_submit_survives_the_loss_of_an_executor(
    kafka: RunningKafka, name: str, tmp_path: Path
) -> None:
    need_spark()
    from tests.spark.drivers.scene import entries, kept, logged, publish
    from tests.spark.standalone import HOME, kill_executor, standalone

    arguments = submitted_from_a_wheel(tmp_path / "submitting", tmp_path / "container_01")
    # Python without site-packages finds nothing of the packages on this machine.
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    bare.chmod(0o755)
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
            cwd=tmp_path / "container_01",
            env={
                **os.environ,
                "PYSPARK_PYTHON": str(bare),
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
        assert driver.poll() is None, driver.communicate()[1][-4000:]
        kill_executor(workers[0])
        out, error = driver.communicate(timeout=600)
        assert driver.returncode == 0, error[-4000:]
        assert json.loads(out.splitlines()[-1])["batches"] == 5
        assert kept(archive) == logged(kafka.bootstrap, name)
