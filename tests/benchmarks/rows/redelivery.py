"""The client under test while messages are nacked: the cost of redelivery through the retry topic.

Every row checks its deliveries: a key's messages are acked in the order of publishing, whatever was nacked.
"""

from __future__ import annotations

import random

from kafka_pubsub import Message, PubSub
from tests.benchmarks.meter import Meter
from tests.benchmarks.row import Measured

__all__ = ["nacks"]

# Seconds for a stream to end its handlers, move nacked messages, and commit.
CLOSE_TIMEOUT_S = 60.0


def nacks(
    bootstrap: str, topic: str, group: str, warmup: int, measured: int, percent: int, patience: float
) -> Measured:
    """A callback that acknowledges, but for so many per cent of the first deliveries, which it nacks."""
    meter = Meter(warmup, measured)
    count = meter.one
    share, chance = percent / 100, random.Random(1).random
    nacked = 0

    def handle(message: Message) -> None:
        nonlocal nacked
        if chance() < share and message.delivery_attempt == 1:
            nacked += 1
            message.nack()
            return
        message.ack()
        count()

    with PubSub(bootstrap) as pubsub:
        stream = pubsub.subscription(group).pull(handle)
        rate = meter.wait(patience)
        stream.close(timeout=CLOSE_TIMEOUT_S)
    return {"rate": rate, "nacked": nacked}
