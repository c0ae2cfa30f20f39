"""The consumer that will be killed: `python -m tests.benchmarks.doomed '{...}'`.

Notes every start and every ack in its diary (`journal`), the ack before it is given. SIGTERM ends the process in peace.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from kafka_pubsub import Message
from tests.benchmarks import journal
from tests.benchmarks.data import head
from tests.benchmarks.pulling import pull_until_ended

__all__ = ["main"]


def main() -> None:
    """Entry point of the consumer's process."""
    wanted = json.loads(sys.argv[1])
    note = journal.Diary(Path(wanted["diary"]), wanted["records"]).note

    def handle(message: Message) -> None:
        key, place, _ = head(message.data)
        note(journal.START, key, place, time.time_ns())
        note(journal.ACK, key, place, time.time_ns())
        message.ack()

    pull_until_ended(wanted["bootstrap"], wanted["group"], handle)


if __name__ == "__main__":
    main()
