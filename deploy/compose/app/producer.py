"""Publishes PER_SECOND orders a second, of ten users in turn, until SIGTERM."""

from __future__ import annotations

import os
import signal
import threading

from shop import Order

from kafka_pubsub import PubSub


def main() -> None:
    """Publishes; each order is stored before the next one is made."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    pause = 1 / float(os.environ.get("PER_SECOND", "10"))
    with PubSub() as pubsub:
        topic = pubsub.topic("orders")
        made = 0
        while not stop.wait(pause):
            made += 1
            order = Order(user=f"user-{made % 10}", number=made)
            topic.publish(order.model_dump_json().encode(), ordering_key=order.user).result(60)
            if made % 100 == 0:
                print(f"published {made}")


if __name__ == "__main__":
    main()
