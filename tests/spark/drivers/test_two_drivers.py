"""Two live drivers of one archive: one is stopped at a step of a batch, its successor goes on, and it is continued.

Nothing is lost, nothing is there twice, and the driver that was stopped ends with an error that says why.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kafka_pubsub import PubSub
from kafka_pubsub.local.pytest_plugin import RunningKafka
from tests.spark.session.support import Runner, publish, values
from tests.support import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[3]
#: Seconds for a driver's next step, on a machine that others use.
PATIENCE = 300


def jars_of(spark: SparkSession) -> dict[str, str]:
    """The environment of a driver that takes the jars which this session has fetched."""
    jars = spark.sparkContext.getConf().get("spark.jars") or ""
    return {"KAFKA_PUBSUB_SPARK_PACKAGES": "", "PYSPARK_SUBMIT_ARGS": f"--jars {jars} pyspark-shell"}


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("step", ["planned", "written", "committed", "finished"])
def test_a_driver_that_was_stopped_and_continues_loses_nothing_and_says_so(
    spark: SparkSession, kafka: RunningKafka, name: str, tmp_path: Path, step: str
) -> None:
    from spark.archive_table import archived
    from tests.spark.drivers.scene import CONF

    archive, flag, hold = tmp_path / "archive", tmp_path / "reached", tmp_path / "hold"
    hold.touch()
    options = ["--topic", name, "--to", str(archive), "--max-per-batch", "20"]
    command = [sys.executable, "-m", "tests.spark.drivers.stopping", step, str(flag), "-b", kafka.bootstrap]
    command += ["spark", "run", "archive", "--master", "local[1]", *CONF, "--conf=spark.driver.memory=700m"]
    commits = tmp_path / "archive-checkpoint" / "commits"
    # A long wait between batches, so that a driver whose batch is finished is stopped before it plans the next.
    every = "10 seconds" if step == "finished" else "100 milliseconds"
    with PubSub(kafka.bootstrap) as ps, (tmp_path / "said").open("wb") as said:
        ps.create_topic(name, partitions=2)

        def numbers(first: int) -> None:
            publish(ps, name, [(f"k{n % 3}", f"{n:03}") for n in range(first, first + 20)])

        numbers(0)
        driver = subprocess.Popen(
            [*command, *options, "--follow", "--every", every],
            cwd=ROOT,
            env={**os.environ, **jars_of(spark)},
            stdout=said,
            stderr=said,
            start_new_session=True,
        )

        def alive() -> bool:
            assert driver.poll() is None, (tmp_path / "said").read_text()[-3000:]
            return True

        try:
            until(lambda: alive() and (commits / "0").exists(), "the first batch", PATIENCE)
            numbers(20)
            reached = {"written": tmp_path / "hold-reached", "finished": commits / "1"}.get(step, flag)
            until(lambda: alive() and reached.exists(), step, PATIENCE)
            os.killpg(driver.pid, signal.SIGSTOP)
            successor = Runner(spark, kafka.bootstrap)
            numbers(40)
            assert successor.typed("archive", options).ok
            assert values(archived(spark, str(archive))) == [f"{n:03}" for n in range(60)]
            hold.unlink()
            numbers(60)
            os.killpg(driver.pid, signal.SIGCONT)
            assert driver.wait(PATIENCE) == 1
        finally:
            if driver.poll() is None:
                os.killpg(driver.pid, signal.SIGKILL)
                driver.wait(30)
        assert "another driver of archive works with checkpoint" in (tmp_path / "said").read_text()
        numbers(80)
        assert successor.typed("archive", options).ok
    assert values(archived(spark, str(archive))) == [f"{n:03}" for n in range(100)]
