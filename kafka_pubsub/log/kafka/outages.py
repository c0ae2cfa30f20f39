"""One warning when no broker of a cluster answers, and then one a minute, for the whole process.

Theory. Each client of librdkafka's notices by itself that it has lost its brokers, and so does each part of ours that
waits for one; a process has dozens. The first of them begins a watch, which asks with a client of its own, and only the
watch tells.

Rules
1. A broker that answers within `GRACE` seconds was never away: brokers close connections that are idle. The seconds
   for which a call has waited in vain before it begins the watch count, so that a wrong address is reported in 5.
2. While a watch lasts, and `AFTERMATH` seconds longer, lines of librdkafka's about lost connections are no warnings
   (`librdkafka_log.py`): a client tells them when it is asked for events the next time.
3. A watch ends when a broker answers, which the log says as information, or when no `PubSub` uses the address any more.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from collections.abc import Callable
from typing import Final, Protocol

from kafka_pubsub.errors import PubSubError

__all__ = ["AFTERMATH", "EVERY", "GRACE", "Outage", "Probe", "outage_of"]

_LOGGER = logging.getLogger("kafka_pubsub.kafka")

#: Seconds without an answer before the warning, and between two warnings.
GRACE: Final = 2.0
EVERY: Final = 60.0
#: Seconds in which all clients have surely connected again.
AFTERMATH: Final = 15.0
#: Seconds between two questions.
_PAUSE: Final = 0.5


class Probe(Protocol):
    """Asks the cluster with a client of its own."""

    def answers(self) -> bool:
        """Returns whether a broker answers, within a second; raises `PubSubError` after the close of its owner."""
        ...

    def problem(self) -> PubSubError:
        """Returns why no broker answers."""
        ...

    def close(self) -> None:
        """Frees the client."""
        ...


class User(Protocol):
    """The clients of one `PubSub`."""

    def probe(self) -> Probe:
        """Returns a new probe; raises `PubSubError` after the close."""
        ...


class Outage:
    """The knowledge of a process about whether a cluster can be reached."""

    def __init__(
        self,
        address: str,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._address = address
        self._clock, self._sleep = clock, sleep
        self._lock = threading.Lock()
        self._users: weakref.WeakSet[User] = weakref.WeakSet()
        # Whether a watch lasts, and when the last one that had warned has ended.
        self._watched = False
        self._ended_at = float("-inf")
        #: Whether the log has said that no broker answers, and not yet that one does again.
        self.told = False

    @property
    def explains(self) -> bool:
        """Whether lost connections and missing answers are no news: a watch lasts, or an outage was over just now."""
        return self._watched or self._clock() < self._ended_at + AFTERMATH

    def add(self, user: User) -> None:
        """Takes the clients of one more `PubSub`."""
        with self._lock:
            self._users.add(user)

    def suspect(self, silent: float = 0.0) -> None:
        """Begins a watch on a thread of its own, if none lasts: no broker has answered for `silent` seconds."""
        with self._lock:
            if self._watched:
                return
            self._watched = True
        threading.Thread(target=self.watch, args=(silent,), name="kafka_pubsub-outage", daemon=True).start()

    def watch(self, silent: float = 0.0) -> None:
        """Asks until a broker answers, or no `PubSub` uses the address any more."""
        began = self._clock() - silent
        warn_at = began + GRACE
        try:
            while (probe := self._probe()) is not None:
                try:
                    while not probe.answers():
                        if self._clock() >= warn_at:
                            self._warn(probe.problem(), began)
                            warn_at = self._clock() + EVERY
                        self._sleep(_PAUSE)
                    self._answered(began)
                    return
                except PubSubError:
                    continue  # its owner was closed; another one may ask
                finally:
                    probe.close()
        finally:
            if self.told:
                self._ended_at = self._clock()
            self._watched = self.told = False

    def _probe(self) -> Probe | None:
        with self._lock:
            users = list(self._users)
        for user in users:
            try:
                return user.probe()
            except PubSubError:
                continue
        return None

    def _warn(self, problem: PubSubError, began: float) -> None:
        seconds = f", for {self._clock() - began:.0f} s now" if self.told else ""
        self.told = True
        _LOGGER.warning("%s%s; publishing and receiving wait for it", problem.message, seconds)

    def _answered(self, began: float) -> None:
        if self.told:
            _LOGGER.info("a broker answers again at %s, after %.0f s", self._address, self._clock() - began)

    def forget(self) -> None:
        """In a forked child: the thread of a watch doesn't exist there."""
        self._lock, self._watched, self.told = threading.Lock(), False, False


# The clusters of this process by their addresses, as long as a `PubSub` uses them.
_ALL: weakref.WeakValueDictionary[str, Outage] = weakref.WeakValueDictionary()


def outage_of(address: str) -> Outage:
    """Returns the object of a cluster, the same for all users of the address."""
    return _ALL.setdefault(address, Outage(address))


def _after_fork() -> None:
    for outage in list(_ALL.values()):
        outage.forget()


os.register_at_fork(after_in_child=_after_fork)
