"""The consumer that will be killed: `python -m tests.benchmarks.doomed '{...}'`.

It notes every start and every ack in its diary (`journal`), the ack before it is given. SIGTERM ends it in peace.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from pathlib import Path

from kafka_pubsub import Message, PubSub
from tests.benchmarks import journal
from tests.benchmarks.data import head

__all__ = ["main"]

CLOSE_TIMEOUT_S = 60.0


def main() -> None:
    """Entry point of the consumer's process."""
    wanted = json.loads(sys.argv[1])
    note = journal.Diary(Path(wanted["diary"]), wanted["records"]).note
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())

    def handle(message: Message) -> None:
        key, place, _ = head(message.data)
        note(journal.START, key, place, time.time_ns())
        note(journal.ACK, key, place, time.time_ns())
        message.ack()

    with PubSub(wanted["bootstrap"]) as pubsub:
        stream = pubsub.subscription(wanted["group"]).pull(handle)
        # Woken twice a second, so that a stream that died is noticed and its reason ends this process.
        while not ended.wait(0.5):
            if stream.done():
                stream.result(timeout=0)
                break
        stream.close(timeout=CLOSE_TIMEOUT_S)


if __name__ == "__main__":
    main()
