"""`kafka-pubsub run` of an app in a folder of its own, as a terminal or a supervisor has it.

Rule: whatever becomes of a test, neither the parent nor one of its processes is left.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from tests.integration.processes.company import PATIENCE, Company
from tests.support import until

__all__ = ["AppRun"]

#: The app: it fails some messages the first time, drops some, and gives some up.
APP = """
import os
import random
import time

from kafka_pubsub import App, DeadLetter, Drop, Message, Retry

app = App()
chance = random.Random(os.getpid())


@app.subscriber(os.environ["COMPANY"], topic=os.environ["COMPANY"], ensure="never")
def handle(number: int, message: Message) -> None:
    time.sleep(chance.uniform(0, 0.002))
    if number % 50 == 7:
        raise DeadLetter("an order of the old form")
    if number % 50 == 9:
        raise Drop("a test order")
    if number % 20 == 3 and message.delivery_attempt == 1:
        raise Retry("waits for the bank", delay=0.2)
    if number % 20 == 5 and message.delivery_attempt == 1:
        raise ConnectionError("the bank doesn't answer")
"""
SAID = re.compile(r"Process (\d+) (started, pid (\d+)|receives|ended)|(all processes start anew)")


class AppRun:
    """The parent and its processes."""

    def __init__(self, company: Company, folder: Path, *options: str) -> None:
        self._company = company
        self.module = folder / "orders.py"
        self.module.write_text(APP)
        self._log = folder / f"run-{len(list(folder.glob('run-*.log')))}.log"
        self.process = company.launch(["kafka_pubsub", "run", "orders:app", *options], self._log, folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait(PATIENCE)
        for pid in self.started():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def said(self) -> str:
        """The lines in its terminal."""
        return self._log.read_text("utf-8")

    def started(self) -> Sequence[int]:
        """The pids of all processes that it ever started."""
        return [int(found[3]) for found in SAID.finditer(self.said()) if found[3]]

    def receiving(self) -> Sequence[int]:
        """The pids of the processes that receive now, as far as it says."""
        running: dict[str, int] = {}
        ready: set[str] = set()
        for number, text, pid, anew in SAID.findall(self.said()):
            if pid:
                running[number] = int(pid)
            if text == "receives":
                ready.add(number)
            elif anew:
                ready.clear()
            else:
                ready.discard(number)
        return [running[number] for number in sorted(ready)]

    def is_busy(self, workers: int, least: int = 100) -> bool:
        """Whether so many processes receive, and each has acked so many messages."""
        assert self.process.poll() is None, self.said()
        pids = self.receiving()
        return len(pids) == workers and all(len(list(self._company.told("ack", pid))) > least for pid in pids)

    def wait_until_busy(self, workers: int) -> Sequence[int]:
        """Returns the pids of the processes, once all of them have work."""
        until(lambda: self.is_busy(workers), "all processes have work", PATIENCE)
        return self.receiving()

    def end(self) -> str:
        """SIGTERM, as a supervisor sends it; returns what the parent and its processes said."""
        self.process.terminate()
        assert self.process.wait(PATIENCE) == 128 + signal.SIGTERM, self.said()
        return self.said()
