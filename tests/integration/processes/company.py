"""Processes that share a subscription, the faults that befall them, and the histories that all of them leave.

Rules
1. The driver's history is told of a death after the process was waited for, of a stop before it.
2. Whatever becomes of a test, no process is left, stopped ones neither.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from kafka_pubsub import DeadLetterPolicy, PubSub, RetryPolicy
from kafka_pubsub.history.history import HistoryFile
from kafka_pubsub.log.kafka.backend import KafkaBackend
from kafka_pubsub.repartition.drain import Drain
from tests.checker.judgement import Judgement, judge
from tests.checker.settings import Settings
from tests.support import until

__all__ = ["PATIENCE", "Company", "Member"]

ROOT = Path(__file__).parents[3]
#: Seconds that anything may take on a busy machine.
PATIENCE = 150.0
#: Seconds that the machine's other tenants may cost a thread, or a commit that is due.
BUSY = Settings(grace=10.0, max_lag=20.0, late_loss=60.0)


class Member:
    """A single process."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path, ready: Path) -> None:
        self.process, self.log, self._ready = process, log, ready

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def is_ready(self) -> bool:
        """Whether its stream is open."""
        return self._ready.exists()


class Company:
    """A topic, its subscription, a publisher and members."""

    def __init__(
        self, bootstrap: str, directory: Path, *, partitions: int = 4, dead_letters: bool = False
    ) -> None:
        self._bootstrap, self._directory = bootstrap, directory
        self.name = self._name = f"company-{uuid.uuid4().hex[:12]}"
        self._processes: list[subprocess.Popen[bytes]] = []
        self._members: list[Member] = []
        self._publisher: tuple[subprocess.Popen[bytes], Path]
        self._made = 0
        self._stack = ExitStack()
        self._ps = self._stack.enter_context(PubSub(bootstrap, history=directory))
        self._backend = KafkaBackend(bootstrap)
        self._stack.callback(self._backend.close)
        self.topic = self._ps.create_topic(self._name, partitions=partitions, message_ordering=True)
        dead = f"{self._name}-dead"
        self.subscription = self._ps.create_subscription(
            self._name,
            self.topic,
            message_ordering=True,
            retry=RetryPolicy(min_backoff=0.05, max_backoff=0.5),
            dead_letter=DeadLetterPolicy(topic=self._ps.create_topic(dead).name) if dead_letters else None,
        )
        self._driver = HistoryFile(directory / "driver.jsonl", role="driver", topic=self._name)
        self._driver.subscribe(dict.fromkeys(range(partitions), 0))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
        self._stack.close()

    # Members

    def hire(self, *, nacks: float = 0.05, seconds: float = 0.002, dies: int = 0) -> Member:
        """A new member; returns when its stream is open."""
        self._made += 1
        log = self._directory / f"member-{self._made}.log"
        ready = log.with_suffix(".ready")
        plan: dict[str, Any] = {
            "bootstrap": self._bootstrap,
            "subscription": self._name,
            "nacks": nacks,
            "seconds": seconds,
            "dies": dies,
            "ready": str(ready),
        }
        process = self._launch_program("member", [json.dumps(plan)], log)
        member = Member(process, log, ready)
        self._members.append(member)
        until(lambda: member.is_ready or process.poll() is not None, "a member has begun", PATIENCE)
        return member

    def _launch_program(self, program: str, arguments: list[str], log: Path) -> subprocess.Popen[bytes]:
        return self.launch([f"tests.integration.processes.{program}", *arguments], log, ROOT)

    def launch(self, module: list[str], log: Path, folder: Path) -> subprocess.Popen[bytes]:
        """Starts a module in a folder, as a process that writes histories."""
        environment = {
            **os.environ,
            "KAFKA_PUBSUB_BOOTSTRAP": self._bootstrap,
            "KAFKA_PUBSUB_HISTORY": str(self._directory),
            "PYTHONPATH": str(ROOT),
            "COMPANY": self._name,
        }
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", *module], stdout=output, stderr=output, cwd=folder, env=environment
            )
        self._processes.append(process)
        return process

    def dismiss(self, *members: Member) -> None:
        """They leave in good order."""
        for member in members:
            member.process.terminate()
        for member in members:
            assert member.process.wait(PATIENCE) == 0, member.log.read_text()
            self._members.remove(member)

    def kill(self, *members: Member) -> None:
        """SIGKILL."""
        for member in members:
            member.process.kill()
            self.store_dead_letter(member)

    def store_dead_letter(self, member: Member) -> None:
        """The process is dead, or about to be."""
        assert member.process.wait(PATIENCE) == -signal.SIGKILL, member.log.read_text()
        self._members.remove(member)
        self._driver.crash(member.pid)

    def kill_process(self, pid: int) -> None:
        """SIGKILL for a process that isn't ours; it is gone when its parent has asked for its end."""
        os.kill(pid, signal.SIGKILL)
        until(lambda: not Path(f"/proc/{pid}").exists(), "the process is gone", PATIENCE)
        self._driver.crash(pid)

    def stop(self, member: Member) -> None:
        """SIGSTOP."""
        self._driver.stop(member.pid)
        member.process.send_signal(signal.SIGSTOP)

    def go_on(self, member: Member) -> None:
        """SIGCONT."""
        self._driver.cont(member.pid)
        member.process.send_signal(signal.SIGCONT)

    # Messages

    def publish(self, rate: float, *, keys: int = 200) -> None:
        """From now on a process publishes so many messages a second."""
        arguments = [self._bootstrap, self._name, str(rate), str(keys)]
        log = self._directory / "publisher.log"
        self._publisher = self._launch_program("publisher", arguments, log), log

    def enough(self) -> None:
        """No more messages: all that were published are stored."""
        process, log = self._publisher
        process.terminate()
        assert process.wait(PATIENCE) == 0, log.read_text()

    def settle(self) -> None:
        """Waits until all published messages are finished, by the committed positions."""
        record = self._backend.catalog.subscriptions()[self._name]
        ends = self._backend.admin.last_stable_offsets(self._name)
        drain = Drain(self._backend)

        def nothing_left() -> bool:
            for member in self._members:
                assert member.process.poll() is None, member.log.read_text()
            return not drain.left(record, ends)

        until(nothing_left, "everything is finished", PATIENCE)

    # Histories

    def told(self, kind: str, *members: Member | int) -> Iterator[dict[str, Any]]:
        """Events of a kind, or several, that these members or pids, or all, have told so far."""
        wanted = re.compile(b'{"event":"(%b)"' % kind.encode())
        pids = [f"-{each.pid if isinstance(each, Member) else each}-" for each in members]
        for path in sorted(self._directory.glob("subscriber-*.jsonl")):
            if pids and not any(pid in path.name for pid in pids):
                continue
            for line in path.read_bytes().split(b"\0")[0].splitlines():
                if wanted.match(line) and line.endswith(b"}"):
                    yield json.loads(line)

    def partitions(self, *members: Member) -> set[int]:
        """The partitions that these members own, as far as they have told."""
        owned: set[int] = set()
        for member in members:
            mine: set[int] = set()
            for event in self.told("assign|revoke", member):
                (mine.add if event["event"] == "assign" else mine.discard)(event["partition"])
            owned |= mine
        return owned

    def close(self) -> Judgement:
        """Everybody who is left leaves in good order; then the histories are judged."""
        self.dismiss(*self._members)
        self._stack.close()
        self._driver.close()
        return judge(self._directory, BUSY)
