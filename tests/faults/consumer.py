"""A consumer process of a round: pulls, takes its time, acks most messages and nacks some; chokes on poison.

It tells its history each delivery before anything else and each verdict before it is given, so that a SIGKILL in
between can't make something look unexplained. Until the client tells its own history (`client.history`), this is all
that is seen: nothing of assignments and commits.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
from pathlib import Path

from kafka_pubsub import FlowControl, Message, PubSub
from kafka_pubsub.model import AckId
from kafka_pubsub.observe.history import HistoryFile
from tests.faults.plan import ConsumerPlan
from tests.faults.publisher import intact

__all__ = ["DAMAGED", "HANG"]

#: Bytes of history taken from the disk at a time: a round makes many short-lived processes.
SEGMENT = 1 << 20
WORKERS = 16
#: Seconds that a poisoned handler hangs, beyond every deadline and extension of the round's subscription.
HANG = 8.0
#: Deliveries after which poison is digested: what is delivered for ever would let no round end.
RAISES, KILLS = 4, 2
#: Exit code of a consumer that was given a message that isn't what was published.
DAMAGED = 4


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
            if "poison" in message.attributes and self._choke(message, lease):
                return
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
            takes = self._rng.uniform(0, plan.slow_handler if slow else plan.handler)
        time.sleep(takes)
        told = (lease.partition, lease.offset, lease.epoch, lease.attempt)
        if nacks:
            self._history.nack(*told, None)
            message.nack()
        else:
            self._history.ack(*told)
            message.ack()

    def _choke(self, message: Message, lease: AckId) -> bool:
        """What poison does; True: the handler is to end without a verdict."""
        match self._plan.poison:
            case "raises" if message.delivery_attempt <= RAISES:
                raise Choked(f"attempt {message.delivery_attempt}")
            case "hangs" if message.delivery_attempt == 1:
                time.sleep(HANG)
                return True
            case "kills" if self._deaths_of(lease) < KILLS:
                os.kill(os.getpid(), signal.SIGKILL)
                time.sleep(HANG)  # the signal comes to the process, not to this thread
        return False

    def _deaths_of(self, lease: AckId) -> int:
        """How many died of it before; counts us."""
        with (Path(self._plan.deaths) / f"{lease.partition}-{lease.offset}").open("ab") as file:
            file.write(b"x")
            return file.tell() - 1


def main() -> None:
    """The process: its one argument is its plan."""
    plan = ConsumerPlan.read(sys.argv[1])
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
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
