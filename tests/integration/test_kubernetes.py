"""The programs of `deploy/kubernetes/overlays/prod` work together on a real broker, as its manifests start them.

Only the cluster is replaced: files lie in a folder of the test's, ports are free ones, and the login is none.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka.admin import AdminClient, NewTopic

pytest.importorskip("kubernetes_validate", reason="needs the extra dev: pip install -e '.[dev]'")

from kafka_pubsub import PubSub
from kafka_pubsub.cli.main import cli
from kafka_pubsub.local import LocalKafka
from tests.support import until
from tests.unit.deploy import manifests
from tests.unit.deploy.manifests import Resource, built, of_kind

SECONDS = 120


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class Pod:
    """The program of a container, and the port on which the program answers."""

    def __init__(self, name: str, resources: list[Resource], folder: Path, bootstrap: str) -> None:
        self._pod = dict(manifests.pods(resources))[name]
        (self._container,) = self._pod["containers"]
        self._folder, self.port = folder, free_port()
        files = manifests.files_of(resources, self._pod, self._container)
        moved = manifests.lay_out(files, folder)
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self._environment = {**os.environ, "PATH": path, "TMPDIR": str(folder)}
        for each in self._container["env"]:
            self._environment[each["name"]] = manifests.with_paths([each["value"]], moved)[0]
        login = Path(self._environment["KAFKA_PUBSUB_CONFIG_FILE"])
        login.write_text(f"bootstrap.servers={bootstrap}\n", "utf-8")
        self._lines = [
            [
                re.sub(r"0\.0\.0\.0:\d+", f"127.0.0.1:{self.port}", word)
                for word in manifests.with_paths(words, moved)
            ]
            for words in manifests.command_lines(self._container)
        ]

    def run(self) -> str:
        """Runs a job to its end in this process, and returns its output."""
        said = ""
        for words in self._lines:
            done = CliRunner().invoke(cli, words, env=self._environment)
            said += done.output
            assert done.exit_code == 0, said
        return said

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Runs a Deployment's program; afterwards SIGTERM, and an end in good order."""
        (words,) = self._lines
        with (self._folder / "log").open("w") as log:
            process = subprocess.Popen(
                ["kafka-pubsub", *words], env=self._environment, cwd=self._folder, stdout=log, stderr=log
            )
            try:
                yield
                process.send_signal(signal.SIGTERM)
                assert process.wait(timeout=SECONDS) in (0, 143), self.log()
            finally:
                process.kill()
                process.wait()

    def log(self) -> str:
        return (self._folder / "log").read_text("utf-8")

    def status(self, probe: str) -> int:
        """The status that a probe of the manifest gets; 0: no answer."""
        path = self._container[probe]["httpGet"]["path"]
        return self.get(path)[0]

    def secret(self, key: str) -> str:
        return (self._folder / "etc" / "worker" / "secret" / key).read_text("utf-8")

    def get(self, path: str, token: str = "") -> tuple[int, str]:
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}")
        if token:
            request.add_header("Authorization", f"Bearer {token}")
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""


def make_topics(bootstrap: str, resources: Sequence[Resource]) -> None:
    """Makes Strimzi's topics, with a copy of each."""
    wanted = []
    for name, topic in of_kind(resources, "KafkaTopic").items():
        spec = topic["spec"]
        settings = {**spec["config"], "min.insync.replicas": "1"}
        wanted.append(NewTopic(spec.get("topicName", name), spec["partitions"], 1, config=settings))
    # The client must live until the broker has answered.
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for answer in admin.create_topics(wanted).values():
        answer.result(timeout=60)


@contextlib.contextmanager
def endpoint() -> Iterator[tuple[str, list[bytes]]]:
    """The address to which the worker delivers, and the bodies that have come."""
    came: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            came.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", came
    finally:
        server.shutdown()
        server.server_close()


def deliver_here(resources: Sequence[Resource], url: str) -> None:
    """Lets the worker deliver to an endpoint on this machine."""
    for each in of_kind(resources, "ConfigMap").values():
        if "worker.toml" in each["data"]:
            text, changed = re.subn(
                r'^url = ".*"$',
                f'url = "{url}"\nallow_private = true',
                each["data"]["worker.toml"],
                flags=re.MULTILINE,
            )
            assert changed == 1
            each["data"]["worker.toml"] = text


def test_all_of_it_works_together(tmp_path: Path) -> None:
    resources = built("overlays/prod")
    with LocalKafka() as kafka, endpoint() as (url, came), contextlib.ExitStack() as stack:
        make_topics(kafka.bootstrap, resources)
        deliver_here(resources, url)
        pods = {
            name: Pod(name, resources, tmp_path / name.replace(" ", "-"), kafka.bootstrap)
            for name, _ in manifests.pods(resources)
            if name != "CronJob audit"
        }
        running = [pod for name, pod in pods.items() if name.startswith("Deployment")]
        for pod in running[:-1]:
            stack.enter_context(pod.running())
        # The worker comes last: the job makes its subscription.
        pods["CronJob setup"].run()
        stack.enter_context(running[-1].running())
        for pod in running:
            until(lambda pod=pod: pod.status("readinessProbe") == 200, "it is ready", SECONDS)  # type: ignore[misc]  # called at once
            assert pod.status("livenessProbe") == 200
        _publish_and_look(kafka.bootstrap, resources, came, pods)
        assert pods["CronJob replay"].run() == "No dead letter to replay (billing)\n"


def _publish_and_look(
    bootstrap: str, resources: Sequence[Resource], came: list[bytes], pods: Mapping[str, Pod]
) -> None:
    with PubSub(bootstrap) as ps:
        orders = ps.topic("orders")
        orders.publish(b"now", ordering_key="ada").result(timeout=SECONDS)
        orders.publish(b"later", ordering_key="ada", delay=1).result(timeout=SECONDS)
    until(lambda: came == [b"now", b"later"], "both were delivered", SECONDS)
    (scaled,) = of_kind(resources, "ScaledObject").values()
    admin = AdminClient({"bootstrap.servers": bootstrap})
    groups = admin.list_consumer_groups().result(timeout=60).valid
    wanted = {each["metadata"]["consumerGroup"] for each in scaled["spec"]["triggers"]}
    assert wanted <= {each.group_id for each in groups}
    worker, monitor = pods["Deployment worker"], pods["Deployment monitor"]
    assert worker.get("/metrics")[0] == 401
    # A scrape gets the figures of the last look, so the first one may have none.
    until(
        lambda: 'unit="billing"' in worker.get("/metrics", worker.secret("read-token"))[1],
        "it counts",
        SECONDS,
    )
    until(lambda: "kafka_pubsub_whole_view" in monitor.get("/metrics")[1], "it has looked", SECONDS)
