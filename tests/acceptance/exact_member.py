"""A process that acks at full speed and writes down which acks it was told to be durable; it is killed in the middle.

Its journal has a line for each delivery ("d") and for each durable ack ("a"), in a single file, each line one write:
the was written before a SIGKILL stays written.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial

from kafka_pubsub import FlowControl, Message, PubSub

__all__ = ["ACKED", "DELIVERED"]

DELIVERED, ACKED = "d", "a"


class Journal:
    """The file."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(self, what: str, message_id: str) -> None:
        os.write(self._file, f"{what} {message_id}\n".encode())


class Member:
    """Callbacks of each kind; a single message in `nacked` is nacked at its first delivery."""

    def __init__(self, journal: Journal, nacked: int) -> None:
        self._journal = journal
        self._nacked = nacked

    def go_on(self, message: Message) -> None:
        """Acks, and doesn't wait."""
        self._begin(message)
        if message.delivery_attempt == 1 and int(message.data) % self._nacked == 0:
            message.nack()
        else:
            message.ack_with_response().add_done_callback(partial(self._told, message.message_id))

    def wait(self, message: Message) -> None:
        """Acks, and waits."""
        self._begin(message)
        message.ack_with_response().result(60)
        self._journal.note(ACKED, message.message_id)

    def batch(self, messages: list[Message]) -> None:
        """Acks a list, and waits."""
        for message in messages:
            self._begin(message)
        answers = [(message, message.ack_with_response()) for message in messages]
        for message, answer in answers:
            answer.result(60)
            self._journal.note(ACKED, message.message_id)

    def _begin(self, message: Message) -> None:
        self._journal.note(DELIVERED, message.message_id)

    def _told(self, message_id: str, answer: Future[None]) -> None:
        if answer.exception() is None:
            self._journal.note(ACKED, message_id)


def main() -> None:
    """Arguments: broker, subscription, journal, kind of callback."""
    bootstrap, name, path, kind = sys.argv[1:]
    member = Member(Journal(path), 50)
    flow = FlowControl(max_messages=2000)
    with PubSub(bootstrap) as ps:
        sub = ps.subscription(name)
        if kind == "batch":
            stream = sub.pull_batch(member.batch, max_messages=50, max_latency=0.01, flow=flow)
        else:
            stream = sub.pull(member.wait if kind == "wait" else member.go_on, flow=flow)
        threading.Thread(target=_until_input_ends, args=(stream.cancel,), daemon=True).start()
        stream.result()


def _until_input_ends(end: Callable[[], object]) -> None:
    sys.stdin.read()
    end()


if __name__ == "__main__":
    main()
