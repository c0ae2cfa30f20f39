"""A process that publishes to random causal topics and signals others over a socket; its single argument is JSON.

bootstrap, topics     where to publish
name, clients         this process, and how many clients it publishes with
ports, port           the sockets of all processes, and its own
rate                  messages a second of each client
seed                  of its choices
history               a file; each line is what happened at a monotonic time that all processes share

A client hears of messages whose futures resolved elsewhere, and publishes the next ones because of them, to one of
their topics at least. It publishes in bursts to the same topics, because only these don't wait for each other. Until
SIGTERM, or until it is killed.
"""

from __future__ import annotations

import json
import random
import signal
import socket
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from kafka_pubsub import PubSub, PubSubError
from kafka_pubsub.services.signals import StopFlag

#: Messages of a client without a place in the order, and messages of a burst.
MOST, BURST = 40, 20


class Talk:
    """The socket: what was heard, and what is told."""

    def __init__(self, ports: Sequence[int], port: int) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", port))
        self._ports = [each for each in ports if each != port]
        self._heard: list[tuple[str, list[str]]] = []
        self._lock = threading.Lock()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        while True:
            message, topics = json.loads(self._socket.recv(65536))
            with self._lock:
                self._heard.append((message, topics))

    def tell(self, message: str, topics: Sequence[str]) -> None:
        """Tells another process that a message is sent."""
        self._socket.sendto(json.dumps([message, topics]).encode(), ("127.0.0.1", random.choice(self._ports)))

    def take(self) -> list[tuple[str, list[str]]]:
        """Returns what was heard since the last time."""
        with self._lock:
            found, self._heard = self._heard, []
        return found


class History:
    """Lines of a file; what is written stays when the process is killed."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab", buffering=0)

    def write(self, **line: Any) -> None:
        """Writes a line, with the time."""
        self._file.write(json.dumps({"at": time.monotonic(), **line}).encode() + b"\n")


def publish(plan: dict[str, Any], number: int, talk: Talk, history: History, stop: StopFlag) -> None:
    """Publishes with a single client until the end."""
    sender = f"{plan['name']}.{number}"
    chances = random.Random(f"{plan['seed']} {sender}")
    room = threading.Semaphore(MOST)

    def settled(message: str, topics: Sequence[str], future: Future[Any]) -> None:
        if future.exception() is None:
            history.write(sent=message, place=list(future.result().timestamp))
            talk.tell(message, topics)
        room.release()

    with PubSub(plan["bootstrap"]) as ps:
        count, left, topics = 0, 0, set[str]()
        while not stop.wait(1 / plan["rate"]):
            if not room.acquire(timeout=0.1):
                continue
            heard = talk.take()[-10:]
            if not left:
                left, topics = (
                    chances.randint(1, BURST),
                    set(chances.sample(plan["topics"], chances.randint(1, 3))),
                )
                if heard:
                    topics.add(chances.choice(heard[-1][1]))
            message, some = f"{sender}-{count}", sorted(topics)
            count, left = count + 1, left - 1
            history.write(
                publish=message, sender=sender, number=count, topics=some, after=[each for each, _ in heard]
            )
            try:
                future = ps.publish_multi(some, message.encode())
            except PubSubError:  # a topic couldn't be looked up, because brokers are away
                room.release()
                continue
            future.add_done_callback(lambda done, m=message, t=some: settled(m, t, done))  # type: ignore[misc]


def main() -> None:
    """Publishes with all clients."""
    plan = json.loads(sys.argv[1])
    stop = StopFlag()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    talk, history = Talk(plan["ports"], plan["port"]), History(Path(plan["history"]))
    threads = [
        threading.Thread(target=publish, args=(plan, number, talk, history, stop))
        for number in range(plan["clients"])
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
