"""A process that publishes to a topic until SIGTERM: address, topic, messages a second, number of keys."""

from __future__ import annotations

import random
import signal
import sys
import time

from kafka_pubsub import PubSub
from kafka_pubsub.services.signals import StopFlag

#: Seconds that the last messages may take.
FLUSH = 120.0


def main() -> None:
    bootstrap, name, rate, keys = sys.argv[1:]
    stop = StopFlag()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    chance = random.Random(7)
    with PubSub(bootstrap) as ps:
        topic = ps.topic(name)
        began, count = time.monotonic(), 0
        while not stop.is_set():
            while count < (time.monotonic() - began) * float(rate):
                topic.publish(b"%d" % count, ordering_key=f"key-{chance.randrange(int(keys))}")
                count += 1
            stop.wait(0.005)
        topic.flush(FLUSH)


if __name__ == "__main__":
    main()
