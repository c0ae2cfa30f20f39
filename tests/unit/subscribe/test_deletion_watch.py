"""The watch over subscriptions that are being received from."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from kafka_pubsub.config import SubscriptionRecord
from kafka_pubsub.errors import PubSubError
from kafka_pubsub.subscribe.deletion_watch import Watch
from tests.unit.subscribe.workers.holding import PATIENCE


class Pulling:
    """A subscriber that receives; remembers that it was ended."""

    pulling = True

    def __init__(self) -> None:
        self.ended = threading.Event()

    def noticed(self, record: SubscriptionRecord) -> None:
        """What the catalog says."""

    def end(self, error: PubSubError | None = None) -> None:
        """Somebody ended it."""
        self.ended.set()


def test_a_subscription_that_is_gone_ends_its_subscriber() -> None:
    subscriber = Pulling()
    watch = Watch(dict, lambda: {"billing": subscriber}, interval=0.01)
    watch.start()
    assert subscriber.ended.wait(PATIENCE)
    watch.stop()


def test_stopping_does_not_wait_for_a_cluster_that_does_not_answer() -> None:
    subscriber = Pulling()
    asked, answer, gone = threading.Event(), threading.Event(), threading.Event()

    def hang() -> Mapping[str, SubscriptionRecord]:
        asked.set()
        assert answer.wait(PATIENCE)
        gone.set()
        return {}

    watch = Watch(hang, lambda: {"billing": subscriber}, interval=0.01)
    watch.start()
    assert asked.wait(PATIENCE)
    watch.stop()  # for ever, if it waited
    assert not gone.is_set()
    answer.set()
    assert gone.wait(PATIENCE)
    assert watch._thread is not None
    watch._thread.join(PATIENCE)
    assert not subscriber.ended.is_set()  # what it learned afterwards is nobody's business any more
