"""Two live drivers of an archive: one is stopped at a step of a batch, its successor goes on, and it is continued.

There is an archive for each step. A driver has them all: each waits at its step, then the whole driver is stopped.

Nothing is lost, nothing is there twice, and the driver that was stopped ends with an error that says why.
"""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kafka_pubsub import PubSub
from kafka_pubsub.local.pytest_plugin import RunningKafka
from tests.spark.drivers.group import PATIENCE, DriverGroup
from tests.spark.session.support import Runner, publish, values
from tests.support import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Archives:
    """An archive of a topic for each step, and the driver of all."""

    def __init__(self, spark: SparkSession, bootstrap: str, topic: str, directory: Path) -> None:
        from tests.spark.drivers.stopping import STEPS

        self.steps = STEPS
        self.directory = directory
        self._spark = spark
        self._topic = topic
        self._runner = Runner(spark, bootstrap)
        self._holds = [directory / each for each in ("hold", "written-hold")]
        for each in self._holds:
            each.touch()
        jobs = json.dumps([self._following(step) for step in STEPS])
        command = [sys.executable, "-m", "tests.spark.drivers.stopping", bootstrap, jobs]
        self.driver = DriverGroup(spark, command, directory / "said")

    def _options(self, step: str) -> list[str]:
        return ["--topic", self._topic, "--to", str(self.directory / step), "--max-per-batch", "20"]

    def _following(self, step: str) -> list[str]:
        # A long wait between batches, so that an archive whose batch is finished is stopped before it plans the next.
        every = "10 seconds" if step == "finished" else "100 milliseconds"
        return ["archive", *self._options(step), "--follow", "--every", every]

    def commit(self, step: str, number: int) -> Path:
        """The file of a batch that is finished."""
        return self.directory / f"{step}-checkpoint" / "commits" / str(number)

    def wait_for(self, wanted: list[Path]) -> None:
        """Until the driver has made these files."""

        def are_there() -> bool:
            self.driver.check()
            return all(each.exists() for each in wanted)

        until(are_there, ", ".join(each.name for each in wanted), PATIENCE)

    def let_go(self) -> None:
        """The steps go on when the driver does."""
        for each in self._holds:
            each.unlink()

    def go_on_with(self, messages: int) -> None:
        """A successor of each archive, which holds so many messages then, each once."""
        from spark.archive.table import archived

        for step in self.steps:
            assert self._runner.typed("archive", self._options(step)).ok
            held = values(archived(self._spark, str(self.directory / step)))
            assert held == [f"{n:03}" for n in range(messages)], step


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_a_driver_that_was_stopped_and_continues_loses_nothing_and_says_so(
    spark: SparkSession, kafka: RunningKafka, name: str, tmp_path: Path
) -> None:
    with PubSub(kafka.bootstrap) as ps:
        ps.create_topic(name, partitions=2)

        def numbers(first: int) -> None:
            publish(ps, name, [(f"k{n % 3}", f"{n:03}") for n in range(first, first + 20)])

        numbers(0)
        archives = Archives(spark, kafka.bootstrap, name, tmp_path)
        with archives.driver as driver:
            archives.wait_for([archives.commit(step, 0) for step in archives.steps])
            numbers(20)
            waiting = ("planned-reached", "written-hold-reached", "committed-reached")
            archives.wait_for([*(tmp_path / each for each in waiting), archives.commit("finished", 1)])
            driver.signal(signal.SIGSTOP)
            numbers(40)
            archives.go_on_with(60)
            archives.let_go()
            numbers(60)
            driver.signal(signal.SIGCONT)
            assert driver.ended() == 1
        for step in archives.steps:
            checkpoint = f"another driver of archive works with checkpoint file:{tmp_path / step}-checkpoint "
            assert checkpoint in driver.said(), step
        numbers(80)
        archives.go_on_with(100)
