"""A member that comes and goes: `python -m tests.benchmarks.member '{...}'`.

Notes every start, ack and nack in its diary (`journal`), before the verb. SIGTERM ends it in peace; after SIGUSR1 it
kills itself with SIGKILL inside its next transaction, when everything but the commit has been sent.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from pathlib import Path

from kafka_pubsub.log.kafka import transactions
from tests.benchmarks import journal
from tests.benchmarks.pulling import noting, pull_until_ended

__all__ = ["main"]


def _die_in_a_transaction(wanted: threading.Event) -> None:
    commit = transactions._Attempt.commit

    def die(attempt: transactions._Attempt) -> None:
        if wanted.is_set():
            os.kill(os.getpid(), signal.SIGKILL)
        commit(attempt)

    setattr(transactions._Attempt, "commit", die)  # noqa: B010 - an assignment would need a method's type


def main() -> None:
    """Entry point of the member's process."""
    wanted = json.loads(sys.argv[1])
    note = journal.Diary(Path(wanted["diary"]), wanted["records"]).note
    doomed = threading.Event()
    signal.signal(signal.SIGUSR1, lambda *_: doomed.set())
    _die_in_a_transaction(doomed)
    handle = noting(note, wanted["nacks"], lambda message, key, place: message.ack())
    pull_until_ended(wanted["bootstrap"], wanted["group"], handle)


if __name__ == "__main__":
    main()
