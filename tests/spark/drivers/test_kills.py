"""SIGKILL to the driver of each job, twice, at different moments of a batch: nothing is lost, nothing counts twice.

`archive` has scenes of its own (test_scene.py, test_two_drivers.py). What is published at least once is told apart by
its `ps-id`, as a subscriber does.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from kafka_pubsub import PubSub
from kafka_pubsub.local.pytest_plugin import RunningKafka
from tests.spark.drivers.test_two_drivers import PATIENCE, ROOT, jars_of
from tests.spark.session.support import LONG, Runner
from tests.support import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

START = 1_700_000_000_000
KEYS = 5
#: Messages that are published at a time.
PART = 30
#: Seconds between a driver's progress and its end: right after a batch, and in the middle of the next.
MOMENTS = (0.0, 0.5)


class Scene:
    """A topic that grows, and drivers that are killed."""

    def __init__(self, spark: SparkSession, bootstrap: str, name: str, directory: Path) -> None:
        self.spark = spark
        self.bootstrap = bootstrap
        self.name = name
        self.target = f"{name}-to"
        self.directory = directory
        self.runner = Runner(spark, bootstrap)
        self.published = 0
        with PubSub(bootstrap) as ps:
            ps.create_topic(name, partitions=2, retention=LONG)
            ps.create_topic(self.target, partitions=1)

    def publish(self, body: Callable[[int], Any]) -> None:
        """The next messages: a second lies between two of one key."""
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for number in range(self.published, self.published + PART):
            value = json.dumps(body(number)).encode()
            producer.produce(
                self.name, value, key=f"k{number % KEYS}", timestamp=START + number // KEYS * 1000
            )
        assert producer.flush(60) == 0
        self.published += PART

    def end(self, body: Any) -> None:
        """A message of another key, a day later."""
        producer = Producer({"bootstrap.servers": self.bootstrap})
        producer.produce(self.name, json.dumps(body).encode(), key="end", timestamp=START + 86_400_000)
        assert producer.flush(60) == 0

    @contextmanager
    def driver(self, command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
        """A process group of its own, which is killed at the end."""
        with (self.directory / "said").open("ab") as said:
            process = subprocess.Popen(
                command,
                cwd=ROOT,
                env={**os.environ, **jars_of(self.spark)},
                stdout=said,
                stderr=said,
                start_new_session=True,
            )
        try:
            yield process
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(30)

    def kill_twice(self, command: list[str], progress: Path, more: Callable[[], None]) -> None:
        """Each driver is killed after it has come further; `more` publishes for the next one."""
        for moment in MOMENTS:
            more()
            before = latest(progress)
            with self.driver(command) as process:

                def further(before: int = before, process: subprocess.Popen[bytes] = process) -> bool:
                    assert process.poll() is None, (self.directory / "said").read_text()[-3000:]
                    return latest(progress) > before

                until(further, "progress", PATIENCE)
                more()
                time.sleep(moment)

    def job(self, name: str, options: list[str]) -> list[str]:
        """The command line of a job."""
        from tests.spark.drivers.scene import command

        memory = "--conf=spark.driver.memory=700m"
        return command(self.bootstrap, name, *options, memory, master="local[1]")

    def arrived(self) -> dict[str, Any]:
        """Bodies of the target by message id."""
        from spark.transforms.messages import messages

        rows = messages(self.spark, self.target, bootstrap=self.bootstrap).collect()
        return {row.message_id: json.loads(bytes(row.data)) for row in rows}


def latest(progress: Path) -> int:
    """The highest number among the names of files: of batches that are done, or of notes."""
    names = (path.name.removesuffix(".json") for path in progress.glob("[0-9]*"))
    return max((int(name) for name in names if name.isdigit()), default=-1)


@pytest.fixture
def scene(spark: SparkSession, kafka: RunningKafka, name: str, tmp_path: Path) -> Scene:
    return Scene(spark, kafka.bootstrap, name, tmp_path)


def streaming(scene: Scene, job: str, options: list[str], body: Callable[[int], Any], end: Any) -> None:
    """Two drivers that are killed, then one that reads the rest."""
    checkpoint = scene.directory / "checkpoint"
    options = ["--topic", scene.name, "--checkpoint", str(checkpoint), *options]
    command = scene.job(job, [*options, "--follow", "--every", "100 milliseconds", "--max-per-batch", "20"])
    scene.kill_twice(command, checkpoint / "commits", lambda: scene.publish(body))
    scene.end(end)
    assert scene.runner.typed(job, options).ok


def test_telemetry(scene: Scene) -> None:
    table = str(scene.directory / "windows")
    options = ["--to", table, "--field", "temp", "--window", "10 seconds", "--late", "1 hour"]
    options += ["--alert", "temp_max >= 0", "--alerts-to", scene.target]
    streaming(scene, "telemetry", options, lambda number: {"temp": number}, {"temp": 0})
    rows = scene.spark.read.format("delta").load(table).where("ordering_key <> 'end'").collect()
    seconds = scene.published // KEYS
    windows = [(f"k{key}", at) for key in range(KEYS) for at in range(0, seconds, 10)]
    assert sorted((row.ordering_key, int(row.start.timestamp()) - START // 1000) for row in rows) == windows
    assert sum(row.readings for row in rows) == scene.published
    told = [(each["ordering_key"], each["start"]) for each in scene.arrived().values()]
    assert len(told) == len(set(told)) == len(windows)


def test_cdc(scene: Scene) -> None:
    table = str(scene.directory / "state")

    def body(number: int) -> Any:
        return "no change" if number % 10 == 9 else {"action": "UPDATE", "data": {"n": number}}

    streaming(scene, "cdc", ["--to", table], body, {"action": "DELETE"})
    rows = scene.spark.read.format("delta").load(table).where("ordering_key <> 'end'").collect()
    expected: dict[str, int] = {}
    for number in range(scene.published):
        if number % 10 != 9:
            expected[f"k{number % KEYS}"] = number
    assert {row.ordering_key: json.loads(row.data)["n"] for row in rows} == expected
    rejects = scene.spark.read.format("delta").load(f"{table}-rejects")
    assert (
        rejects.count() == rejects.select("partition", "offset").distinct().count() == scene.published // 10
    )


def test_sessions(scene: Scene) -> None:
    streaming(
        scene,
        "sessions",
        ["--to", scene.target, "--gap", "3600", "--late", "1 hour"],
        lambda _: {"type": "view"},
        {"type": "view"},
    )
    told = scene.arrived().values()
    assert [each["events"] for each in told] == [scene.published // KEYS] * KEYS


def test_replay(scene: Scene) -> None:
    scene.publish(lambda number: {"n": number})
    state = scene.directory / "state"
    # Slow, so that there are many portions and a kill finds one at work.
    options = ["--topic", scene.name, "--to", scene.target, "--state", str(state), "--rate", "1"]
    scene.kill_twice(scene.job("replay", options), state / "progress", lambda: None)
    assert scene.runner.typed("replay", [*options[:-2]]).ok
    from spark.transforms.messages import messages

    rows = messages(scene.spark, scene.target, bootstrap=scene.bootstrap).collect()
    assert sorted(json.loads(bytes(row.data))["n"] for row in rows) == list(range(PART))


def test_write_stream(scene: Scene) -> None:
    from spark.transforms.messages import messages
    from spark.transforms.outgoing import write_stream

    checkpoint = scene.directory / "checkpoint"
    command = [sys.executable, "-m", "tests.spark.drivers.copying", scene.bootstrap]
    command += [scene.name, scene.target, str(checkpoint)]
    scene.kill_twice(command, checkpoint / "commits", lambda: scene.publish(lambda number: {"n": number}))
    rest = messages(scene.spark, scene.name, bootstrap=scene.bootstrap, stream=True)
    write_stream(
        rest.select("data", "ordering_key"),
        scene.target,
        query="copy",
        checkpoint=checkpoint,
        bootstrap=scene.bootstrap,
        available_now=True,
    ).awaitTermination(PATIENCE)
    assert sorted(each["n"] for each in scene.arrived().values()) == list(range(scene.published))
