"""docs/compose.md, typed from its first line to its last, in a fresh copy of the repository, on images built from it.

Rules
1. The commands run as the page has them. `docker compose` is `docker-compose` where only that is installed.
2. Ports, images and the project's name come from the environment, as the page's variables do.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from testcontainers.core.labels import SESSION_ID

from kafka_pubsub.local.tcp_ports import free_ports
from tests.containers.engine import LABELS, PROJECT, Engine
from tests.support import until
from tests.unit.house.repository import ROOT, files, relative

BLOCK = re.compile(r"^```(sh|dockerfile)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAGE = (ROOT / "docs" / "compose.md").read_text("utf-8")
#: Threads that print at once may share a line.
CHARGED = re.compile(r"charged user-(\d) (\d+)")
NO_COMPOSE: Final = "no compose: install Docker's docker-compose-plugin, or Debian's package docker-compose"
LABEL: Final = "com.docker.compose"
#: Seconds, for a machine that others use too.
PATIENCE: Final = 180.0


def compose() -> list[str]:
    """The command, in the form that is installed."""
    if subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode == 0:
        return ["docker", "compose"]
    if shutil.which("docker-compose"):
        return ["docker-compose"]
    if os.environ.get("CI"):
        pytest.fail(NO_COMPOSE, pytrace=False)
    pytest.skip(NO_COMPOSE)


class Project:
    """A copy of the repository, in which the page's commands are typed."""

    def __init__(self, engine: Engine, folder: Path, environment: dict[str, str]) -> None:
        self._engine, self._folder, self._compose = engine, folder, compose()
        self._environment = {**os.environ, **environment}
        self.worker_1, self.worker_2, self.prometheus = (
            int(environment[f"{name}_PORT"]) for name in ("WORKER_1", "WORKER_2", "PROMETHEUS")
        )

    def type(self, block: str, folder: str = "deploy/compose") -> str:
        """Runs a block of the page; each of its commands must succeed."""
        words = block.replace("docker compose", " ".join(self._compose))
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", words],
            cwd=self._folder / folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )
        assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr

    def logs(self, service: str) -> str:
        """What a service has said, its killed container included."""
        wanted = [f"{LABEL}.project={PROJECT}", f"{LABEL}.service={service}"]
        (container,) = self._engine.client.containers.list(all=True, filters={"label": wanted})
        return str(container.logs().decode())

    def secret(self, name: str) -> str:
        return (self._folder / "deploy" / "compose" / "secrets" / name).read_text().strip()

    def ask(self, path: str, port: int, token: str = "") -> str:
        """Returns an answer, or nothing while there is none."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return str(answer.read().decode())
        except OSError:
            return ""

    def is_ready(self, port: int) -> bool:
        return '"ok":true' in self.ask("/readyz", port)

    def of_prometheus(self, what: str) -> dict[str, Any]:
        text = self.ask(f"/api/v1/{what}", self.prometheus)
        return dict(json.loads(text)["data"]) if text else {}


def charged(log: str) -> list[tuple[str, int]]:
    """The orders of a log: user and number."""
    return [(user, int(number)) for user, number in CHARGED.findall(log)]


@pytest.fixture
def project(engine: Engine, image: str, kafka_image: str, tmp_path: Path) -> Iterator[Project]:
    for path in files():
        copy = tmp_path / relative(path)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
    prometheus = os.environ.get("KAFKA_PUBSUB_PROMETHEUS_IMAGE") or engine.build(
        "kafka-pubsub-prometheus", ROOT / "deploy" / "images" / "prometheus"
    )
    ports = [str(port) for port in free_ports(3)]
    made = Project(
        engine,
        tmp_path,
        {
            "COMPOSE_PROJECT_NAME": PROJECT,
            "KAFKA_PUBSUB_IMAGE": f"kafka-pubsub-page:{SESSION_ID[:8]}",
            "KAFKA_IMAGE": kafka_image,
            "PROMETHEUS_IMAGE": prometheus,
            "BASE": engine.base,
            "WORKER_1_PORT": ports[0],
            "WORKER_2_PORT": ports[1],
            "PROMETHEUS_PORT": ports[2],
        },
    )
    yield made
    # After a failure; the page's own last command has removed all of it else.
    made.type("docker compose down --volumes")


def blocks(language: str) -> list[str]:
    return [text for kind, text in BLOCK.findall(PAGE) if kind == language]


@pytest.mark.timeout(900)
def test_the_cluster_of_the_page(engine: Engine, project: Project) -> None:
    begin, look, kill, end, _ = blocks("sh")
    project.type(begin, folder="")
    workers = project.worker_1, project.worker_2
    until(lambda: all(map(project.is_ready, workers)), "the workers are ready", PATIENCE)
    until(lambda: charged(project.logs("worker-1")), "the first worker has orders", PATIENCE)
    until(lambda: charged(project.logs("worker-2")), "the second worker has orders", PATIENCE)
    assert "billing" in project.type(look)
    assert project.ask("/connectors", project.worker_1) == "", "not without a token"
    assert "shop" in project.ask("/connectors", project.worker_1, project.secret("worker-token"))

    until(lambda: scraped(project) == 2, "Prometheus scrapes both", PATIENCE)
    loaded = [rule["name"] for group in project.of_prometheus("rules")["groups"] for rule in group["rules"]]
    assert len(loaded) == (ROOT / "deploy" / "observe" / "rules.yml").read_text("utf-8").count("- alert: ")
    assert firing(project) == set()

    kill_one, told, start_again = kill.splitlines()
    project.type(kill_one)
    before = max(number for _, number in charged(project.logs("worker-2")))
    until(lambda: has_all_users(project, before), "the other worker has all users", PATIENCE)
    assert "charged" in project.type(told)
    until(lambda: has_all_orders(project), "no order is lost", PATIENCE)
    for log in logs_of_both(project):
        for user in {user for user, _ in log}:
            ours = list(dict.fromkeys(number for each, number in log if each == user))
            assert ours == sorted(ours), f"the orders of user-{user} are in order"
    assert firing(project) == set()
    project.type(start_again)
    until(partial(project.is_ready, project.worker_1), "it is back", PATIENCE)
    until(lambda: scraped(project) == 2, "Prometheus scrapes both again", PATIENCE)

    project.type(end)
    mine = {"label": f"{LABEL}.project={PROJECT}"}
    assert engine.client.containers.list(all=True, filters=mine) == []
    assert engine.client.networks.list(filters=mine) == []
    assert engine.client.volumes.list(filters=mine) == []


def scraped(project: Project) -> int:
    """How many workers Prometheus reaches."""
    targets = project.of_prometheus("targets").get("activeTargets", [])
    return sum(target["health"] == "up" for target in targets)


def firing(project: Project) -> set[str]:
    alerts = project.of_prometheus("alerts")["alerts"]
    return {alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing"}


def logs_of_both(project: Project) -> list[list[tuple[str, int]]]:
    return [charged(project.logs(each)) for each in ("worker-1", "worker-2")]


def has_all_orders(project: Project) -> bool:
    """Whether all orders were charged but the last ones, which may be under way."""
    numbers = {number for log in logs_of_both(project) for _, number in log}
    return numbers >= set(range(1, max(numbers) - 50))


def has_all_users(project: Project, before: int) -> bool:
    """Whether the second worker has charged each of the ten users after the order with that number."""
    return len({user for user, number in charged(project.logs("worker-2")) if number > before}) == 10


def test_the_images_of_the_page(engine: Engine, image: str, tmp_path: Path) -> None:
    (derived,) = blocks("dockerfile")
    (tmp_path / "Dockerfile").write_text(derived.replace("FROM kafka-pubsub", f"FROM {image}"))
    (tmp_path / "shop.py").write_text("from kafka_pubsub import App\nimport humanize\napp = App()\n")
    made = engine.build("kafka-pubsub-derived", tmp_path)
    look = ["-c", "import humanize, shop; print(humanize.intcomma(1000))"]
    told = engine.client.containers.run(made, look, entrypoint="/app/bin/python3", remove=True, labels=LABELS)
    assert told == b"1,000\n"
    build, version = blocks("sh")[-1].splitlines()
    assert build == "docker build -f deploy/images/Dockerfile -t kafka-pubsub ."
    ((label, value),) = LABELS.items()
    command = version.replace(" kafka-pubsub", f" --label {label}={value} {image}", 1).split()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.startswith("kafka-pubsub "), done.stderr
