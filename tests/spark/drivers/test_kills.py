"""SIGKILL to the driver of each job, twice, at different moments of a batch: nothing is lost, nothing counts twice.

`archive` has scenes of its own (test_scene.py, test_two_drivers.py). Messages published at least once are told apart by
its `ps-id`, as a subscriber does. A single driver runs all jobs that follow a topic, and is killed with them.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from confluent_kafka import Producer

from kafka_pubsub import PubSub
from kafka_pubsub.local.pytest_plugin import RunningKafka
from tests.spark.drivers.group import PATIENCE, DriverGroup
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
    """A topic that grows, and a job's rows of it."""

    def __init__(self, spark: SparkSession, bootstrap: str, directory: Path) -> None:
        self.spark = spark
        self.bootstrap = bootstrap
        self.name = f"spark-{uuid4().hex[:12]}"
        self.target = f"{self.name}-to"
        self.directory = directory
        self.checkpoint = directory / "checkpoint"
        self.runner = Runner(spark, bootstrap)
        self.published = 0
        with PubSub(bootstrap) as ps:
            ps.create_topic(self.name, partitions=2, retention=LONG)
            ps.create_topic(self.target, partitions=1)

    def publish(self, body: Callable[[int], Any]) -> None:
        """The next messages: a second lies between two of a key."""
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

    def arrived(self) -> dict[str, Any]:
        """Bodies of the target by message id."""
        from spark.reading.messages import messages

        rows = messages(self.spark, self.target, bootstrap=self.bootstrap).collect()
        return {row.message_id: json.loads(bytes(row.data)) for row in rows}


@dataclass
class Story:
    """A job that follows a topic: its options, the body of each message, and of the message at the end."""

    job: str
    options: Callable[[Scene], list[str]]
    body: Callable[[int], Any]
    end: Any = None

    def typed(self, scene: Scene) -> list[str]:
        """Its options, without options of a driver that stays."""
        return ["--topic", scene.name, "--checkpoint", str(scene.checkpoint), *self.options(scene)]

    def command(self, scene: Scene) -> list[str]:
        """As many.py takes it."""
        if self.job == "copying":
            return [self.job, scene.name, scene.target, str(scene.checkpoint)]
        following = ["--follow", "--every", "100 milliseconds", "--max-per-batch", "20"]
        return [self.job, *self.typed(scene), *following]


def change(number: int) -> Any:
    return "no change" if number % 10 == 9 else {"action": "UPDATE", "data": {"n": number}}


STORIES = {
    "cdc": Story("cdc", lambda scene: ["--to", str(scene.directory / "state")], change, {"action": "DELETE"}),
    "write_stream": Story("copying", lambda _: [], lambda number: {"n": number}),
}


def latest(progress: Path) -> int:
    """The highest number among the names of files: of batches that are done, or of notes."""
    names = (path.name.removesuffix(".json") for path in progress.glob("[0-9]*"))
    return max((int(name) for name in names if name.isdigit()), default=-1)


def kill_twice(
    spark: SparkSession,
    bootstrap: str,
    jobs: dict[Path, list[str]],
    said: Path,
    more: Callable[[], None],
) -> None:
    """Each driver is killed after each job has come further; `more` publishes for the next driver.

    `jobs`: by the directory in which the progress is seen.
    """
    command = [sys.executable, "-m", "tests.spark.drivers.many", bootstrap, json.dumps([*jobs.values()])]
    for moment in MOMENTS:
        more()
        before = {progress: latest(progress) for progress in jobs}
        with DriverGroup(spark, command, said) as driver:

            def further(before: dict[Path, int] = before, driver: DriverGroup = driver) -> bool:
                driver.check()
                assert " failed: " not in driver.said(), driver.said()[-3000:]
                return all(latest(progress) > last for progress, last in before.items())

            until(further, "progress", PATIENCE)
            more()
            time.sleep(moment)


@pytest.fixture(scope="module")
def scenes(
    spark: SparkSession, kafka: RunningKafka, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Scene]:
    """The files that two drivers of all stories that were killed have left."""
    directory = tmp_path_factory.mktemp("kills")
    found = {}
    for name in STORIES:
        (directory / name).mkdir()
        found[name] = Scene(spark, kafka.bootstrap, directory / name)

    def more() -> None:
        for name, story in STORIES.items():
            found[name].publish(story.body)

    jobs = {found[name].checkpoint / "commits": story.command(found[name]) for name, story in STORIES.items()}
    kill_twice(spark, kafka.bootstrap, jobs, directory / "said", more)
    return found


def ended(scenes: dict[str, Scene], name: str) -> Scene:
    """The scene, once a driver that isn't killed has read the rest."""
    scene, story = scenes[name], STORIES[name]
    scene.end(story.end)
    assert scene.runner.typed(story.job, story.typed(scene)).ok
    return scene


def test_cdc(scenes: dict[str, Scene]) -> None:
    scene = ended(scenes, "cdc")
    table = str(scene.directory / "state")
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


def test_write_stream(scenes: dict[str, Scene]) -> None:
    from spark.reading.messages import messages
    from spark.writing.outgoing import write_stream

    scene = scenes["write_stream"]
    rest = messages(scene.spark, scene.name, bootstrap=scene.bootstrap, stream=True)
    write_stream(
        rest.select("data", "ordering_key"),
        scene.target,
        query="copy",
        checkpoint=scene.checkpoint,
        bootstrap=scene.bootstrap,
        available_now=True,
    ).awaitTermination(PATIENCE)
    assert sorted(each["n"] for each in scene.arrived().values()) == list(range(scene.published))


def test_replay(spark: SparkSession, kafka: RunningKafka, tmp_path: Path) -> None:
    scene = Scene(spark, kafka.bootstrap, tmp_path)
    scene.publish(lambda number: {"n": number})
    state = tmp_path / "state"
    # Slow, so that there are many portions and a kill finds one at work.
    options = ["--topic", scene.name, "--to", scene.target, "--state", str(state)]
    jobs = {state / "progress": ["replay", *options, "--rate", "1"]}
    kill_twice(spark, kafka.bootstrap, jobs, tmp_path / "said", lambda: None)
    assert scene.runner.typed("replay", options).ok
    from spark.reading.messages import messages

    rows = messages(spark, scene.target, bootstrap=scene.bootstrap).collect()
    assert sorted(json.loads(bytes(row.data))["n"] for row in rows) == list(range(PART))
