"""Watches the catalog's records of subscriptions that this process receives from.

If any process deletes or detaches a subscription, its streams end with the reason. Its streams also get other changes
of its record.

Theory: the group's protocol tells a member which partitions come and go, but not that its subscription is gone; and a
group can't be deleted while it has members. So each process that receives reads the catalog every `INTERVAL`: one
small request for all its subscriptions together.

Rules
1. The thread lives while there is a subscription to watch, and has ended when `stop` returns. If it waits for a
   cluster that doesn't answer, `stop` doesn't wait for it, and the thread ends later by itself, without effect.
2. A cluster that can't be reached proves nothing about a subscription: the watch looks again later.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from kafka_pubsub.config import SubscriptionRecord
from kafka_pubsub.errors import FailedPrecondition, NotFound, PubSubError

__all__ = ["INTERVAL", "Receiving", "Watch", "reason_to_end"]

#: Seconds between two looks: how long a stream outlives its subscription. A deletion waits for that, so it is short.
INTERVAL: Final = 1.0

#: Seconds that `stop` waits for a look that has begun: it takes milliseconds where a broker answers.
STOP_WAIT: Final = 1.0

_log = logging.getLogger("kafka_pubsub.subscriber")


class Receiving(Protocol):
    """The part of a subscriber that the watch needs."""

    @property
    def pulling(self) -> bool:
        """Whether it has streams."""
        ...

    def noticed(self, record: SubscriptionRecord) -> None:
        """Takes the subscription's record as it is now in the catalog."""
        ...

    def end(self, error: PubSubError | None = None) -> None:
        """Ends its streams; `error` is the reason."""
        ...


def reason_to_end(name: str, record: SubscriptionRecord | None) -> PubSubError | None:
    """Returns why a stream of this subscription must end; None if it may go on."""
    if record is None or record.state == "deleting":
        return NotFound(f"subscription {name!r} was deleted")
    if record.detached:
        return FailedPrecondition(
            f"subscription {name!r} was detached, because its topic {record.topic!r} was deleted"
        )
    return None


class Watch:
    """Ends subscribers whose subscription is gone."""

    def __init__(
        self,
        subscriptions: Callable[[], Mapping[str, SubscriptionRecord]],
        subscribers: Callable[[], Mapping[str, Receiving]],
        interval: float = INTERVAL,
    ) -> None:
        self._subscriptions = subscriptions
        self._subscribers = subscribers
        self._interval = interval
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Starts the thread; does nothing if it runs already, or was stopped."""
        with self._lock:
            if self._thread is None and not self._stopping.is_set():
                self._thread = threading.Thread(target=self._run, name="kafka_pubsub-watch", daemon=True)
                self._thread.start()

    def stop(self) -> None:
        """Ends the thread."""
        with self._lock:
            self._stopping.set()
            thread = self._thread
        if thread is not None:
            thread.join(STOP_WAIT)

    def _run(self) -> None:
        while not self._stopping.wait(self._interval):
            try:
                self.look()
            except PubSubError as error:
                _log.debug("couldn't look whether subscriptions still exist: %s", error)

    def look(self) -> None:
        """Looks once at all subscriptions that this process receives from."""
        pulling = {name: each for name, each in self._subscribers().items() if each.pulling}
        if not pulling:
            return
        records = self._subscriptions()
        if self._stopping.is_set():
            return
        for name, subscriber in pulling.items():
            record = records.get(name)
            error = reason_to_end(name, record)
            if error is None and record is not None:
                subscriber.noticed(record)
            elif error is not None:
                # On another thread, because `end` waits for callbacks, and the other subscriptions must not.
                threading.Thread(
                    target=subscriber.end, args=(error,), name="kafka_pubsub-end", daemon=True
                ).start()
