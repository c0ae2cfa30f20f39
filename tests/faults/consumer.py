"""A consumer process of a round: pulls, takes its time, acks most messages and nacks some; chokes on poison.

SIGUSR1 has it die of SIGKILL inside its next transaction, SIGUSR2 tell what each of its threads is doing.
"""

from __future__ import annotations

import faulthandler
import os
import random
import signal
import sys
import threading
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from kafka_pubsub import BrokerUnavailable, FlowControl, Message, PubSub, Stream, Subscription
from kafka_pubsub.log.kafka import client_factory
from kafka_pubsub.services.signals import StopFlag
from tests.faults.plan import ConsumerPlan
from tests.faults.publisher import intact

__all__ = ["DAMAGED"]

WORKERS = 16
#: Seconds until a SIGKILL that a process sends to itself has surely come.
SOON = 10.0
#: Exit code of a consumer that was given a message that isn't what was published.
DAMAGED = 4


class DoomedProducer(Producer):
    """Dies inside a transaction, when it is asked to: before its offsets, its end, or the answer to that is used."""

    arm_kill = threading.Event()
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
        if self.arm_kill.is_set() and self.rng.random() < probability:
            self.mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(SOON)


class Choked(Exception):
    """What a handler of a poisoned message raises."""


class Consumer:
    """The callback, and what it does to messages by its plan."""

    def __init__(self, plan: ConsumerPlan) -> None:
        self._plan = plan
        self._rng = random.Random(plan.seed)
        self._lock = threading.Lock()
        self.damaged = threading.Event()

    def handle(self, message: Message) -> None:
        """The callback."""
        if not intact(message.data):
            self.damaged.set()
        if "poison" in message.attributes:
            self._choke(message)
        else:
            self._work(message)

    def _work(self, message: Message) -> None:
        plan = self._plan
        with self._lock:
            nacks, slow = (100 * self._rng.random() < each for each in (plan.nack_percent, plan.slow_percent))
            takes = self._rng.uniform(0, plan.slow_handler if slow else plan.handler)
        time.sleep(takes)
        if nacks and message.delivery_attempt <= plan.last_nack:
            message.nack()
        else:
            message.ack()

    def _choke(self, message: Message) -> None:
        """What poison does: raise, hang and return without a report, or kill the process; whenever it comes."""
        match message.attributes["poison"]:
            case "hangs":
                time.sleep(self._plan.hang)
            case "kills":
                os.kill(os.getpid(), signal.SIGKILL)
                time.sleep(SOON)
            case _:
                raise Choked(f"attempt {message.delivery_attempt}")


def opened(subscription: Subscription, consumer: Consumer, stop: StopFlag) -> Stream | None:
    """Opens the stream. Without a broker the first call raises, and the process tries again as its supervisor would."""
    while not stop.is_set():
        try:
            # Fewer than there are: what waits in Kafka is what a takeover has to find.
            flow = FlowControl(max_messages=200)
            return subscription.pull(consumer.handle, flow=flow, max_workers=WORKERS)
        except BrokerUnavailable as error:
            print(f"trying again: {error}", file=sys.stderr)
    return None


def main() -> None:
    """The process: its single argument is its plan."""
    plan = ConsumerPlan.read(sys.argv[1])
    stop = StopFlag()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    faulthandler.register(signal.SIGUSR2)
    arm_kill = DoomedProducer.arm_kill
    signal.signal(signal.SIGUSR1, lambda *_: arm_kill.set())
    DoomedProducer.mark = Path(plan.deaths) / f"in-transaction-{os.getpid()}"
    DoomedProducer.rng = random.Random(plan.seed)
    vars(client_factory)["Producer"] = DoomedProducer
    consumer = Consumer(plan)
    with PubSub(plan.bootstrap, history=plan.told) as ps:
        stream = opened(ps.subscription(plan.subscription), consumer, stop)
        with stream or nullcontext():
            plan.path.touch()
            while stream is not None and not stop.wait(0.1):
                if stream.done():
                    stream.result(0)
                    sys.exit("the stream ended although it wasn't closed")
    if consumer.damaged.is_set():
        sys.exit(DAMAGED)


if __name__ == "__main__":
    main()
