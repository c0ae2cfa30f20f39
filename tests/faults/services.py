"""The routers, sequencers and multicasting processes of a round, and what befalls them.

Rules
1. One that ends by itself is a finding: services have to live through every fault.
2. Whatever happens to the driver, no process is left, SIGSTOPped ones neither: a guard kills them when it dies.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from kafka_pubsub.local.orphan_guard import Guard
from kafka_pubsub.local.tcp_ports import free_ports

__all__ = ["Services"]

ROOT = Path(__file__).parents[2]
#: Processes of each kind.
ROUTERS, SEQUENCERS, SENDERS = 2, 2, 2
#: Clients of each multicasting process, and messages a second of each client.
CLIENTS, RATE = 2, 15.0
#: Of delayed delivery, as options; these tiers hold a minute.
TIERS, DELAY_PARTITIONS = "6", "2"
#: Seconds for an end in good order; a sender waits for its futures.
LEAVE = 120.0
#: What a process returns that ended in good order; of a command it says which signal ended it.
IN_ORDER = (0, 128 + signal.SIGTERM)


class Services:
    """The processes by name: `router-0`, `sequencer-1`, `sender-0`."""

    def __init__(self, bootstrap: str, folder: Path, topics: Sequence[str], seed: int) -> None:
        self._bootstrap, self._folder, self._topics, self._seed = bootstrap, folder, topics, seed
        # UDP ports that are free as TCP ports are nearly always free.
        self._ports = free_ports(SENDERS)
        self._guard = Guard()
        self._made = 0
        self._lock = threading.Lock()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        #: What went wrong with processes by themselves.
        self.findings: list[str] = []
        for kind, count in (("router", ROUTERS), ("sequencer", SEQUENCERS), ("sender", SENDERS)):
            for number in range(count):
                self.start(f"{kind}-{number}")

    def names(self, kind: str) -> list[str]:
        """The processes of a kind that run."""
        return sorted(name for name in self._processes if name.startswith(kind))

    def start(self, name: str) -> None:
        """Starts that process."""
        kind, _, number = name.partition("-")
        with self._lock, (self._folder / f"{name}.log").open("ab") as log:
            self._made += 1
            process = subprocess.Popen(
                [sys.executable, "-m", *self._command(kind, int(number))], stdout=log, stderr=log, cwd=ROOT
            )
            self._processes[name] = process
        self._guard.watch(process.pid)

    def kill(self, name: str) -> None:
        """SIGKILL."""
        with self._lock:
            process = self._processes.pop(name)
        self._look(name, process)
        process.kill()
        process.wait()
        self._guard.spare(process.pid)

    def freeze(self, name: str) -> None:
        """SIGSTOP."""
        self._processes[name].send_signal(signal.SIGSTOP)

    def thaw(self, name: str) -> None:
        """SIGCONT."""
        self._processes[name].send_signal(signal.SIGCONT)

    def retire(self, kind: str) -> None:
        """SIGTERM to all processes of a kind, and waits for their end in good order."""
        with self._lock:
            leaving = {name: self._processes.pop(name) for name in self.names(kind)}
        for name, process in leaving.items():
            self._look(name, process)
            process.terminate()
        for name, process in leaving.items():
            try:
                code = process.wait(LEAVE)
            except subprocess.TimeoutExpired:
                self.findings.append(f"{name} didn't end when it was asked to")
                process.kill()
                process.wait()
            else:
                self.findings += [] if code in IN_ORDER else [f"{name} ended with code {code}"]
            self._guard.spare(process.pid)

    def close(self) -> None:
        """Nothing is left."""
        for name in list(self._processes):
            self.kill(name)
        self._guard.release()

    def _look(self, name: str, process: subprocess.Popen[bytes]) -> None:
        if process.poll() is not None:
            self.findings.append(
                f"{name} ended by itself with code {process.returncode}: {self._folder}/{name}.log"
            )

    def _command(self, kind: str, number: int) -> Sequence[str]:
        if kind != "sender":
            options = ["--tiers", TIERS, "--partitions", DELAY_PARTITIONS] if kind == "router" else []
            return ["kafka_pubsub", "--bootstrap", self._bootstrap, "service", kind, *options]
        plan = {
            "bootstrap": self._bootstrap,
            "topics": self._topics,
            "name": f"p{self._made}",
            "clients": CLIENTS,
            "rate": RATE,
            "ports": self._ports,
            "port": self._ports[number],
            "seed": self._seed,
            "history": str(self._folder / f"{self._made}.history"),
        }
        return ["tests.faults.multicaster", json.dumps(plan)]
