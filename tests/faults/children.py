"""The processes of a round, each told by its plan, and what the driver does to them.

Rules
1. A consumer that dies is started again at once, whoever killed it and whatever the driver is doing: the history must
   be told of a death before others own its partitions. One that ends by itself with an error is a finding: consumers
   have to live through every fault.
2. The driver's history is told of a death after the process was waited for, of a freeze before it.
3. Whatever happens to the driver, no process is left, SIGSTOPped ones neither: a guard kills them when it dies.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from kafka_pubsub.history.history import HistoryFile
from kafka_pubsub.local.orphan_guard import Guard
from tests.faults.plan import ConsumerPlan, PublisherPlan
from tests.faults.watcher import Sight, last_sight

__all__ = ["Children"]

ROOT = Path(__file__).parents[2]
#: Seconds for an end in good order: handlers, commits, and requests to brokers that may be away.
LEAVE = 60.0
#: Seconds between two looks for consumers that have died.
LOOK = 0.1
#: Findings that are kept: consumers that can't live at all are started again until the round is over.
MOST_FINDINGS = 10


@dataclass
class _Member:
    process: subprocess.Popen[bytes]
    log: Path
    frozen: bool = False

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    @property
    def begun(self) -> bool:
        """Whether it has come so far that SIGTERM is an end in good order."""
        return self.log.with_suffix(".ready").exists()


class Children:
    """Consumers by slot, and publishers. `plan_of` makes the plan of a slot's n-th process."""

    def __init__(
        self, folder: Path, driver: HistoryFile, plan_of: Callable[[int, int, Path], ConsumerPlan]
    ) -> None:
        self._folder, self._driver, self._plan_of = folder, driver, plan_of
        self._lock = threading.RLock()
        self._members: dict[int, _Member] = {}
        self._publishers: list[_Member] = []
        self._watcher: _Member | None = None
        self._made = 0
        self._guard = Guard()
        #: What keeps consumers from hearing from the log now, by name: as what the history was told of it.
        self._troubles: dict[str, list[str]] = {}
        self.deaths = 0
        #: What went wrong with processes by themselves.
        self.findings: list[str] = []
        self._closed = threading.Event()
        self._reviver = threading.Thread(target=self._revive_until_closed, name="reviver", daemon=True)
        self._reviver.start()

    # Consumers

    @property
    def slots(self) -> list[int]:
        """The slots that have a process now."""
        with self._lock:
            return sorted(self._members)

    @property
    def pids(self) -> list[int]:
        """The consumers' process ids."""
        with self._lock:
            return [member.process.pid for member in self._members.values()]

    def pid(self, slot: int) -> int | None:
        """The slot's process; None when it has none now."""
        with self._lock:
            member = self._members.get(slot)
            return None if member is None else member.process.pid

    def start(self, slot: int) -> None:
        """A new process for the slot."""
        with self._lock:
            self._made += 1
            path = self._folder / f"consumer-{slot}-{self._made}.ready"
            plan = self._plan_of(slot, self._made, path)
            member = self._launch("tests.faults.consumer", [plan.line()], path.with_suffix(".log"))
            self._members[slot] = member
            for name, told in self._troubles.items():
                told.append(f"{name}, {member.process.pid}")
                self._driver.fault(told[-1], [member.process.pid])

    def kill(self, slot: int) -> None:
        """SIGKILL."""
        with self._lock:
            member = self._members.pop(slot)
            member.process.kill()
            member.process.wait()
            self._close_dead(member)

    def arm_kill(self, slot: int) -> None:
        """Has a consumer die of SIGKILL inside its next transaction, once it can take the signal."""
        with self._lock:
            if (member := self._members[slot]).begun:
                member.process.send_signal(signal.SIGUSR1)

    def freeze(self, slot: int) -> None:
        """SIGSTOP."""
        with self._lock:
            member = self._members[slot]
            self._driver.stop(member.process.pid)
            member.process.send_signal(signal.SIGSTOP)
            member.frozen = True

    def thaw(self, slot: int) -> None:
        """SIGCONT."""
        with self._lock:
            member = self._members.get(slot)
            if member is not None and member.frozen:
                self._driver.cont(member.process.pid)
                member.process.send_signal(signal.SIGCONT)
                member.frozen = False

    def trouble(self, name: str) -> None:
        """From now on consumers, also those that start meanwhile, may not hear from the log."""
        with self._lock:
            self._troubles[name] = [name]
            self._driver.fault(name, self.pids)

    def relief(self, name: str) -> None:
        """That is over."""
        with self._lock:
            for told in self._troubles.pop(name):
                self._driver.mend(told)

    def question(self) -> None:
        """Has all consumers write into their logs what their threads are doing: something is stuck."""
        with self._lock:
            for member in self._members.values():
                if member.begun:
                    member.process.send_signal(signal.SIGUSR2)

    def retire(self, slot: int) -> None:
        """SIGTERM, and wait for an end in good order."""
        with self._lock:
            member = self._members.pop(slot)
        self._end(member, "consumer")

    def begun(self, slot: int) -> bool:
        """Whether the slot's process has come to work."""
        with self._lock:
            return slot in self._members and self._members[slot].begun

    def _revive_until_closed(self) -> None:
        while not self._closed.wait(LOOK):
            self._revive()

    def _revive(self) -> None:
        """Start again what has died by itself."""
        with self._lock:
            if self._closed.is_set():
                return
            dead = [slot for slot, each in self._members.items() if each.process.poll() is not None]
            for slot in dead:
                member = self._members.pop(slot)
                if member.process.returncode != -signal.SIGKILL:
                    self._find(member, "consumer")
                self._close_dead(member)
                self.start(slot)

    # Publishers

    def start_publisher(self, plan: PublisherPlan) -> None:
        """One more publisher."""
        self._publishers.append(
            self._launch("tests.faults.publisher", [plan.line()], plan.path.with_suffix(".log"))
        )

    @property
    def publishing(self) -> bool:
        """Whether a publisher still runs."""
        return any(each.alive for each in self._publishers)

    def end_publishers(self) -> None:
        """Wait until they have flushed."""
        self._end_all(self._publishers, "publisher")
        self._publishers.clear()

    # The watcher

    def watch(self, bootstrap: str, subscription: str) -> Sight | None:
        """What was seen of the subscription last; looks go on from the first call."""
        path = self._folder / "sight.json"
        watcher = self._watcher
        if watcher is not None and watcher.process.poll() is not None:
            self._find(watcher, "watcher")
            self._guard.spare(watcher.process.pid)
            watcher = None
        self._watcher = watcher or self._launch(
            "tests.faults.watcher", [bootstrap, subscription, str(path)], self._folder / "watcher.log"
        )
        return last_sight(path)

    def retire_all(self) -> None:
        """Every consumer leaves in good order."""
        for slot in self.slots:
            self.thaw(slot)
        with self._lock:
            members = [self._members.pop(slot) for slot in self.slots]
        self._end_all(members, "consumer")

    def close(self) -> None:
        """Nothing is left."""
        self._closed.set()
        with self._lock:
            watchers = [] if self._watcher is None else [self._watcher]
            for member in [*self._members.values(), *self._publishers, *watchers]:
                member.process.kill()
                member.process.wait()
        self._reviver.join()
        self._guard.release()

    def _launch(self, module: str, arguments: list[str], log: Path) -> _Member:
        with log.open("ab") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments], stdout=output, stderr=output, cwd=ROOT
            )
        self._guard.watch(process.pid)
        return _Member(process, log)

    def _end_all(self, members: Sequence[_Member], what: str) -> None:
        with ThreadPoolExecutor(max(1, len(members))) as pool:
            list(pool.map(lambda member: self._end(member, what), members))

    def _end(self, member: _Member, what: str) -> None:
        until = time.monotonic() + LEAVE
        while member.alive and not member.begun and time.monotonic() < until:
            time.sleep(0.05)
        member.process.terminate()
        try:
            code = member.process.wait(LEAVE if what == "consumer" else 3 * LEAVE)
        except subprocess.TimeoutExpired:
            if member.begun:
                # What its threads are doing, into its log.
                member.process.send_signal(signal.SIGUSR2)
                time.sleep(1)
            member.process.kill()
            member.process.wait()
            self.findings.append(f"{what} {member.process.pid} didn't end when it was asked to: {member.log}")
            self._close_dead(member)
            return
        self._guard.spare(member.process.pid)
        if code != 0:
            self._find(member, what)
            self._close_dead(member)

    def _find(self, member: _Member, what: str) -> None:
        if len(self.findings) >= MOST_FINDINGS:
            return
        last = member.log.read_text("utf-8", "replace").strip().splitlines()[-1:]
        self.findings.append(
            f"{what} {member.process.pid} ended with code {member.process.returncode}: "
            f"{last[0] if last else 'without a word'} ({member.log})"
        )

    def _close_dead(self, member: _Member) -> None:
        self.deaths += 1
        self._guard.spare(member.process.pid)
        self._driver.crash(member.process.pid)
