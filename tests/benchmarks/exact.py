"""A consumer of an exactly-once subscription that will be killed: `python -m tests.benchmarks.exact '{...}'`.

Notes every start, ack and nack in its diary (`journal`), before the verb, and each ack whose storing was reported.
Doesn't wait for these reports: at full speed a thousand acks are on their way. SIGTERM ends the process in peace.
"""

from __future__ import annotations

import json
import sys
import time
from concurrent.futures import Future
from functools import partial
from pathlib import Path

from kafka_pubsub import Message
from tests.benchmarks import journal
from tests.benchmarks.pulling import noting, pull_until_ended

__all__ = ["main"]


def main() -> None:
    """Entry point of the consumer's process."""
    wanted = json.loads(sys.argv[1])
    note = journal.Diary(Path(wanted["diary"]), wanted["records"]).note

    def told(key: int, place: int, answer: Future[None]) -> None:
        if answer.exception() is None:
            note(journal.DURABLE, key, place, time.time_ns())

    def ack(message: Message, key: int, place: int) -> None:
        message.ack_with_response().add_done_callback(partial(told, key, place))

    handle = noting(note, wanted["nacks"], ack)
    pull_until_ended(wanted["bootstrap"], wanted["group"], handle)


if __name__ == "__main__":
    main()
