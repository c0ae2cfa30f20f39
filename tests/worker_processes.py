"""Workers as processes in one folder, asked over their REST interface; for tests on a broker and for benchmarks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import MappingProxyType

from kafka_pubsub.local.tcp_ports import free_ports

__all__ = ["WorkerProcess"]


class WorkerProcess:
    """A worker on `worker.toml` of a folder; its end is that of `stack`."""

    def __init__(
        self,
        bootstrap: str,
        folder: Path,
        stack: ExitStack,
        environment: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        (self.port,) = free_ports(1)
        self.log = folder / f"log-{self.port}"
        command = ["-m", "kafka_pubsub", "worker", "--config", "worker.toml", "--http", str(self.port)]
        self.process = subprocess.Popen(
            [sys.executable, *command],
            cwd=folder,
            env={**os.environ, "KAFKA_PUBSUB_BOOTSTRAP": bootstrap, **environment},
            stdout=stack.enter_context(self.log.open("w")),
            stderr=subprocess.STDOUT,
        )
        stack.callback(self.process.wait)
        stack.callback(self.process.kill)

    def end(self) -> None:
        """Ends the process in good order."""
        self.process.terminate()
        self.process.wait(60)

    def kill(self) -> None:
        """SIGKILL; returns when the process is gone."""
        self.process.kill()
        self.process.wait()

    def ask(self, path: str, method: str = "GET", body: object = None) -> object:
        """Returns the answer; None: there is none, or an error."""
        assert self.process.poll() is None, self.log.read_text()
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}", data, {"content-type": "application/json"}, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                text = answer.read()
                return json.loads(text) if text else {}
        except OSError:  # errors of HTTP too
            return None

    def state(self, name: str) -> object:
        """Returns a connector's state as this worker says; None: no answer."""
        found = self.ask(f"/connectors/{name}/status")
        return found["connector"]["state"] if isinstance(found, dict) and "connector" in found else None

    def tasks(self, name: str) -> int:
        """Returns the number of a connector's tasks."""
        found = self.ask(f"/connectors/{name}/tasks")
        return len(found) if isinstance(found, list) else 0
