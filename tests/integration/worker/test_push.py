"""Two workers on one broker push a subscription: each key in its order, also when one of them is killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from kafka_pubsub import PubSub
from kafka_pubsub.local import LocalKafka
from kafka_pubsub.local.tcp_ports import free_ports
from tests.support import until
from tests.unit.worker.push.test_push import Endpoint

PATIENCE = 120.0
KEYS, EACH = 20, 15


class Worker:
    """A worker process."""

    def __init__(self, bootstrap: str, folder: Path, stack: ExitStack) -> None:
        (self.port,) = free_ports(1)
        log = stack.enter_context((folder / f"log-{self.port}").open("w"))
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "kafka_pubsub",
                "worker",
                "--config",
                "worker.toml",
                "--http",
                str(self.port),
            ],
            cwd=folder,
            env={**os.environ, "KAFKA_PUBSUB_BOOTSTRAP": bootstrap},
            stdout=log,
            stderr=log,
        )
        stack.callback(self.end)

    def end(self) -> None:
        self.process.terminate()
        self.process.wait(60)

    def ask(self, path: str, method: str = "GET", body: object = None) -> object:
        """The answer; None: there is none, or an error."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}", data, {"content-type": "application/json"}, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                text = answer.read()
                return json.loads(text) if text else {}
        except (urllib.error.URLError, OSError):
            return None

    def state(self, name: str) -> object:
        found = self.ask(f"/connectors/{name}/status")
        return found["connector"]["state"] if isinstance(found, dict) and "connector" in found else None


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    made = Endpoint()
    yield made
    made.close()


def first_of_each(bodies: list[bytes]) -> dict[str, list[int]]:
    """By key the numbers in the order in which they came first."""
    seen: dict[str, list[int]] = {}
    for body in bodies:
        key, number = body.decode().split()
        if int(number) not in seen.setdefault(key, []):
            seen[key].append(int(number))
    return seen


def test_what_is_made_at_one_worker_runs_at_both_in_order_and_outlives_one(
    endpoint: Endpoint, tmp_path: Path
) -> None:
    (tmp_path / "worker.toml").write_text("[services]\nsequencer = true\n")
    hook = {
        "connector.class": "push",
        "subscription": "hook",
        "topic": "orders",
        "url": endpoint.url,
        "allow_private": "true",
    }
    with LocalKafka() as broker, PubSub(broker.bootstrap) as ps, ExitStack() as stack:
        topic = ps.create_topic("orders", partitions=4)
        ps.create_subscription("hook", "orders", message_ordering=True)
        workers = [Worker(broker.bootstrap, tmp_path, stack) for _ in range(2)]
        until(lambda: all(each.ask("/connectors") == ["sequencer"] for each in workers), "both", PATIENCE)
        made = workers[0].ask("/connectors", "POST", {"name": "hook", "config": hook})
        assert isinstance(made, dict)
        until(lambda: [each.state("hook") for each in workers] == ["RUNNING"] * 2, "RUNNING", PATIENCE)

        def tasks() -> int:
            found = workers[1].ask("/connectors/hook/tasks")
            return len(found) if isinstance(found, list) else 0

        until(lambda: tasks() == 2, "two members", PATIENCE)
        for number in range(EACH):
            for key in range(KEYS):
                topic.publish(b"%d %d" % (key, number), ordering_key=str(key)).result(PATIENCE)
            if number == EACH // 2:
                workers[0].process.kill()
        until(lambda: ps.subscription("hook").state().backlog == 0, "all pushed", PATIENCE)
        assert first_of_each(endpoint.bodies()) == {str(key): list(range(EACH)) for key in range(KEYS)}
        until(lambda: tasks() == 1, "the dead one isn't shown", PATIENCE)

        assert workers[1].ask("/connectors/hook/pause", "PUT") == {}
        later = Worker(broker.bootstrap, tmp_path, stack)
        until(lambda: later.state("hook") == "PAUSED", "PAUSED", PATIENCE)
        assert workers[1].state("hook") == "PAUSED"
