"""A router in a process of its own that kills itself (SIGKILL) in a phase of one of its transactions.

Arguments: the address, the phase, and in which transaction. In phase "never" it runs until it is killed.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from kafka_pubsub import PubSub
from kafka_pubsub.delays.service import DelayRouter
from kafka_pubsub.log.kafka import transactions

__all__ = ["PHASES"]

#: Before anything of the transaction; before its first record, when a router's offsets were taken; when the records
#: were stored; when all is ready; while the commit is under way; when it was answered.
PHASES = ("before", "begun", "written", "prepared", "committing", "committed")


def die(at: str, phase: str) -> None:
    if at == phase and counted() == TRANSACTION:
        os.kill(os.getpid(), signal.SIGKILL)


#: How many transactions were begun, as a list so that the wrappers can count.
COUNT: list[None] = []
TRANSACTION = 0


def counted() -> int:
    return len(COUNT)


def kill_at(phase: str) -> None:
    attempt: Any = transactions._Attempt
    write, prepare, commit = attempt._write_all, attempt.prepare, attempt.commit

    def die_before(records: Any, self: Any) -> None:
        die("begun", phase)
        write(self, records)
        if phase == "written":
            self._producer.flush(5)
        die("written", phase)

    def prepare_and_die(self: Any) -> None:
        COUNT.append(None)
        die("before", phase)
        prepare(self)
        die("prepared", phase)

    def commit_and_die(self: Any) -> None:
        if phase == "committing" and counted() == TRANSACTION:
            threading.Thread(target=commit, args=(self,)).start()
            time.sleep(TRANSACTION / 1000)  # each transaction dies at another moment
        die("committing", phase)
        commit(self)
        die("committed", phase)

    wrapped: Callable[[Any, Any], None] = lambda self, records: die_before(records, self)  # noqa: E731
    attempt._write_all, attempt.prepare, attempt.commit = wrapped, prepare_and_die, commit_and_die


def main() -> None:
    global TRANSACTION
    address, phase, TRANSACTION = sys.argv[1], sys.argv[2], int(sys.argv[3])
    kill_at(phase)
    with PubSub(address) as ps, DelayRouter(ps, tiers=4, partitions=2):
        while True:
            time.sleep(1)


if __name__ == "__main__":
    main()
