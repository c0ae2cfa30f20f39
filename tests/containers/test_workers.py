"""Two workers in containers under load: one is killed, both are rolled to a new image, and nothing is lost."""

from __future__ import annotations

import os
import threading
import time
import urllib.request
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Final

import pytest
from testcontainers.core.container import DockerContainer

from kafka_pubsub import PubSub
from tests.containers.cluster import ContainerCluster
from tests.containers.engine import Engine, OwnNetwork
from tests.support import until

#: Messages a second, and keys. So each key has a message every 30 ms.
RATE, KEYS = 2000, 60
#: Seconds that a key may stand still, on a machine that others use too.
LONGEST_STALL: Final = 30.0
#: The aims on two idle cores, after a kill and while both are rolled. They are judged with KAFKA_PUBSUB_FIGURES=1.
AFTER_A_KILL, WHILE_ROLLED = 10.0, 8.0
JUDGED: Final = bool(os.environ.get("KAFKA_PUBSUB_FIGURES"))
#: Seconds of load before something happens, and after it.
BEFORE, AFTER = 3.0, 12.0
PATIENCE: Final = 120.0
PORT: Final = 8080
#: Each line is written at once, so that SIGKILL loses none that was acked.
SHOP = """
import os, time
from kafka_pubsub import App, Message
app = App()
told = os.open(f"/told/{os.environ['NAME']}", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
@app.subscriber("billing", topic="orders", message_ordering=True, start="earliest")
def charge(message: Message) -> None:
    os.write(told, f"{time.time_ns()} {message.ordering_key} {message.data.decode()}\\n".encode())
"""


class Workers:
    """Worker containers on one file, and what their handlers have noted."""

    def __init__(
        self, brokers: ContainerCluster, network: OwnNetwork, folder: Path, stack: ExitStack
    ) -> None:
        self._brokers, self._network, self._stack = brokers, network, stack
        self._app, self._told = folder / "app", folder / "told"
        self._app.mkdir()
        self._told.mkdir()
        # The image's user isn't ours.
        self._told.chmod(0o777)
        for each in (self._app, folder):
            each.chmod(0o755)
        self.topic = f"orders-{uuid.uuid4().hex[:8]}"
        (self._app / "shop.py").write_text(
            SHOP.replace('"billing"', f'"{self.topic}-s"').replace('"orders"', f'"{self.topic}"')
        )
        (self._app / "worker.toml").write_text('[apps]\nshop = "shop:app"\n')
        self._made = 0

    def start(self, image: str) -> Worker:
        """Starts one more, and waits until it is ready."""
        self._made += 1
        number = 30 + self._made
        container = (
            self._network.container(image, number, working_dir="/srv", read_only=True)
            .with_volume_mapping(self._app, "/srv", "ro")
            .with_volume_mapping(self._told, "/told", "rw")
            .with_envs(NAME=f"worker-{self._made}", KAFKA_PUBSUB_BOOTSTRAP=self._brokers.bootstrap)
            .with_command(["worker", "--config", "worker.toml", "--http", f"0.0.0.0:{PORT}", "--insecure"])
        )
        worker = Worker(self._stack.enter_context(container), self._network.address(number))
        until(worker.is_ready, "the worker is ready", PATIENCE)
        return worker

    def handled(self) -> list[tuple[int, str, int]]:
        """When which message of which key was handled, from the first to the last."""
        lines = (line.split() for file in self._told.iterdir() for line in file.read_text().splitlines())
        return sorted((int(at), key, int(number)) for at, key, number in lines)


class Worker:
    """A container."""

    def __init__(self, container: DockerContainer, address: str) -> None:
        self.container, self._url = container, f"http://{address}:{PORT}/readyz"

    def is_ready(self) -> bool:
        docker = self.container.get_wrapped_container()
        docker.reload()
        assert docker.status == "running", docker.logs().decode()
        try:
            with urllib.request.urlopen(self._url, timeout=10) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def kill(self) -> None:
        self.container.get_wrapped_container().kill()

    def end(self) -> None:
        """SIGTERM, and the end in good order."""
        docker = self.container.get_wrapped_container()
        docker.stop(timeout=60)
        assert docker.wait()["StatusCode"] in (0, 143), docker.logs().decode()[-2000:]


class Load:
    """Messages at a steady rate, from `begin` to `end`."""

    def __init__(self, ps: PubSub, topic: str) -> None:
        self._topic, self._over = ps.topic(topic), threading.Event()
        self._thread = threading.Thread(target=self._publish, name="load")
        self.sent: list[Future[str]] = []
        self._began = time.monotonic()

    def begin(self) -> None:
        self._began = time.monotonic()
        self._thread.start()

    def end(self) -> float:
        """Returns the messages a second that were published."""
        self._over.set()
        self._thread.join()
        rate = len(self.sent) / (time.monotonic() - self._began)
        for future in self.sent:
            future.result(PATIENCE)
        return rate

    def _publish(self) -> None:
        while not self._over.wait(0.005):
            due = int((time.monotonic() - self._began) * RATE)
            for number in range(len(self.sent), due):
                self.sent.append(self._topic.publish(b"%d" % number, ordering_key=f"k{number % KEYS}"))


def judge(handled: list[tuple[int, str, int]], sent: int) -> float:
    """Nothing is missing, each key is in order; returns the longest time in seconds that a key stood still."""
    assert {number for _, _, number in handled} == set(range(sent)), "every message was handled"
    keys: defaultdict[str, dict[int, int]] = defaultdict(dict)
    for at, key, number in handled:
        keys[key].setdefault(number, at)
    for key, first in keys.items():
        assert list(first) == sorted(first), f"{key} is out of order"
    times = [list(first.values()) for first in keys.values()]
    return max(later - earlier for each in times for earlier, later in pairwise(each)) / 1e9


def test_the_judge_finds_losses_disorder_and_stalls() -> None:
    second = 1_000_000_000
    assert judge([(0, "a", 0), (second, "a", 0), (3 * second, "a", 1)], 2) == 3
    with pytest.raises(AssertionError, match="every message was handled"):
        judge([(0, "a", 0)], 2)
    with pytest.raises(AssertionError, match="a is out of order"):
        judge([(0, "a", 1), (1, "a", 0)], 2)


@pytest.fixture
def workers(brokers: ContainerCluster, network: OwnNetwork, tmp_path: Path) -> Iterator[Workers]:
    with ExitStack() as stack:
        yield Workers(brokers, network, tmp_path, stack)


def under_load(brokers: ContainerCluster, workers: Workers, happen: Callable[[], None], aim: float) -> str:
    """Publishes before, while and after something happens, and judges all of it; returns the figures."""
    with PubSub(brokers.bootstrap) as ps:
        load = Load(ps, workers.topic)
        load.begin()
        time.sleep(BEFORE)
        happen()
        time.sleep(AFTER)
        rate = load.end()
        sent = len(load.sent)
        until(lambda: len({n for _, _, n in workers.handled()}) >= sent, "all were handled", PATIENCE)
    stall = judge(workers.handled(), sent)
    told = f"{sent} messages, {rate:.0f}/s, longest stall of a key {stall:.1f} s"
    assert stall < (aim if JUDGED else LONGEST_STALL), told
    assert not JUDGED or rate > 0.9 * RATE, told
    return told


def made(brokers: ContainerCluster, workers: Workers) -> None:
    with PubSub(brokers.bootstrap) as ps:
        ps.create_topic(workers.topic, partitions=6, message_ordering=True)


def test_of_two_workers_one_is_killed_under_load(
    brokers: ContainerCluster, workers: Workers, image: str, figure: Callable[[str], None]
) -> None:
    made(brokers, workers)
    first, _ = workers.start(image), workers.start(image)
    figure(under_load(brokers, workers, first.kill, AFTER_A_KILL))


def test_both_workers_are_rolled_to_a_new_image_under_load(
    engine: Engine,
    brokers: ContainerCluster,
    workers: Workers,
    image: str,
    tmp_path: Path,
    figure: Callable[[str], None],
) -> None:
    made(brokers, workers)
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "Dockerfile").write_text(f'FROM {image}\nLABEL generation="2"\n')
    newer = engine.build("kafka-pubsub-newer", tmp_path / "new")
    old = [workers.start(image), workers.start(image)]

    def roll() -> None:
        for worker in old:
            workers.start(newer)
            worker.end()

    figure(under_load(brokers, workers, roll, WHILE_ROLLED))
