"""A process that pulls a subscription until SIGTERM; its single argument, JSON, says how its handler behaves.

bootstrap, subscription     whom to pull
nacks                       share of first deliveries that are nacked
seconds                     the most that a handler takes; a message with the attribute "takes" takes that, once
dies                        SIGKILL inside that transaction, counted from 1, before its end is asked for; 0: never
ready                       a file that is made when the stream is open
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from kafka_pubsub import Message, PubSub
from kafka_pubsub.log.kafka import client_factory
from kafka_pubsub.services.signals import StopFlag

#: Seconds until a SIGKILL that a process sends to itself has surely come.
SOON = 10.0


class DyingProducer(Producer):
    """Leaves a transaction open: its records and offsets are with the broker, its end isn't."""

    left = 0

    def commit_transaction(self, *arguments: Any, **named: Any) -> None:
        DyingProducer.left -= 1
        if DyingProducer.left == 0:
            self.flush(SOON)
            os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(SOON)
        super().commit_transaction(*arguments, **named)


def main() -> None:
    plan = json.loads(sys.argv[1])
    stop = StopFlag()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    if plan["dies"]:
        DyingProducer.left = plan["dies"]
        vars(client_factory)["Producer"] = DyingProducer
    chance = random.Random(os.getpid())

    def handle(message: Message) -> None:
        if message.delivery_attempt == 1 and "takes" in message.attributes:
            time.sleep(float(message.attributes["takes"]))
        elif plan["seconds"]:
            time.sleep(chance.uniform(0, plan["seconds"]))
        if message.delivery_attempt == 1 and chance.random() < plan["nacks"]:
            message.nack()
        else:
            message.ack()

    with PubSub(plan["bootstrap"]) as ps, ps.subscription(plan["subscription"]).pull(handle) as stream:
        Path(plan["ready"]).touch()
        while not stop.wait(0.05):
            if stream.done():
                stream.result(0)


if __name__ == "__main__":
    main()
