"""A consumer process of a round: pulls, takes its time, acks most messages and nacks some; chokes on poison.

SIGUSR1 has it die of SIGKILL inside its next transaction, SIGUSR2 tell what each of its threads is doing.

It tells its history each delivery before anything else and each verdict before it is given, so that a SIGKILL in
between can't make something look unexplained. Until the client tells its own history (`client.history`), this is all
that is seen: nothing of assignments and commits.
"""

from __future__ import annotations

import faulthandler
import os
import random
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from kafka_pubsub import FlowControl, Message, PubSub
from kafka_pubsub.kafka import handles
from kafka_pubsub.model import AckId
from kafka_pubsub.observe.history import HistoryFile
from tests.faults.plan import ConsumerPlan
from tests.faults.publisher import intact

__all__ = ["DAMAGED"]

#: Bytes of history taken from the disk at a time: a round makes many short-lived processes.
SEGMENT = 1 << 20
WORKERS = 16
#: Seconds until a SIGKILL that a process sends to itself has surely come.
SOON = 10.0
#: Exit code of a consumer that was given a message that isn't what was published.
DAMAGED = 4


class DoomedProducer(Producer):
    """Dies inside a transaction, when it is asked to: before its offsets, its end, or the answer to that is used."""

    doom = threading.Event()
    mark: Path
    rng: random.Random

    def send_offsets_to_transaction(self, *arguments: Any, **named: Any) -> None:
        self._die(0.2)
        super().send_offsets_to_transaction(*arguments, **named)

    def commit_transaction(self, *arguments: Any, **named: Any) -> None:
        self._die(0.8)
        super().commit_transaction(*arguments, **named)
        self._die(1.0)

    def _die(self, probability: float) -> None:
        if self.doom.is_set() and self.rng.random() < probability:
            self.mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(SOON)


class Choked(Exception):
    """What a handler of a poisoned message raises."""


class Consumer:
    """The callback, and what it does to messages by its plan."""

    def __init__(self, plan: ConsumerPlan, history: HistoryFile) -> None:
        self._plan, self._history = plan, history
        self._rng = random.Random(plan.seed)
        self._lock = threading.Lock()
        self.damaged = threading.Event()

    def handle(self, message: Message) -> None:
        """The callback."""
        lease = AckId.parse(message.ack_id)
        where = (lease.partition, lease.offset, lease.epoch)
        self._history.deliver(message, *where, lease.attempt)
        error: BaseException | None = None
        try:
            if not intact(message.data):
                self.damaged.set()
            if "poison" in message.attributes:
                self._choke(message)
            else:
                self._work(message, lease)
        except BaseException as raised:
            error = raised
            self._history.nack(*where, lease.attempt, None)
            raise
        finally:
            self._history.handler_end(*where, None if error is None else repr(error))

    def _work(self, message: Message, lease: AckId) -> None:
        plan = self._plan
        with self._lock:
            nacks, slow = (100 * self._rng.random() < each for each in (plan.nack_percent, plan.slow_percent))
            nacks = nacks and message.delivery_attempt <= plan.last_nack
            takes = self._rng.uniform(0, plan.slow_handler if slow else plan.handler)
        time.sleep(takes)
        told = (lease.partition, lease.offset, lease.epoch, lease.attempt)
        if nacks:
            self._history.nack(*told, None)
            message.nack()
        else:
            self._history.ack(*told)
            message.ack()

    def _choke(self, message: Message) -> None:
        """What poison does: raise, hang and return without a verdict, or kill the process; whenever it comes."""
        match message.attributes["poison"]:
            case "hangs":
                time.sleep(self._plan.hang)
            case "kills":
                os.kill(os.getpid(), signal.SIGKILL)
                time.sleep(SOON)
            case _:
                raise Choked(f"attempt {message.delivery_attempt}")


def main() -> None:
    """The process: its one argument is its plan."""
    plan = ConsumerPlan.read(sys.argv[1])
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    faulthandler.register(signal.SIGUSR2)
    doom = DoomedProducer.doom
    signal.signal(signal.SIGUSR1, lambda *_: doom.set())
    DoomedProducer.mark = Path(plan.deaths) / f"in-transaction-{os.getpid()}"
    DoomedProducer.rng = random.Random(plan.seed)
    vars(handles)["Producer"] = DoomedProducer
    history = HistoryFile(
        plan.path, role="subscriber", topic=plan.topic, subscription=plan.subscription, segment=SEGMENT
    )
    consumer = Consumer(plan, history)
    with PubSub(plan.bootstrap) as ps:
        subscription = ps.subscription(plan.subscription)
        # Fewer than there are: what waits in Kafka is what a takeover has to find.
        with subscription.pull(
            consumer.handle, flow=FlowControl(max_messages=200), max_workers=WORKERS
        ) as stream:
            while not stop.wait(0.1):
                if stream.done():
                    stream.result(0)
                    sys.exit("the stream ended although nobody closed it")
    history.close()
    if consumer.damaged.is_set():
        sys.exit(DAMAGED)


if __name__ == "__main__":
    main()
