"""The future of a message to causal topics.

Rule: the first outcome counts. Outcomes are stored under the publisher's lock, and read without it.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future
from typing import NamedTuple, Protocol

from kafka_pubsub.errors import PubSubError
from kafka_pubsub.multicast.values import MessageTimestamp
from kafka_pubsub.publish.future import LateFuture

__all__ = ["IdFuture", "Sent", "SentFuture", "Waits", "resolve"]


class Sent(NamedTuple):
    """What the future of `publish_multi` gives: the message's id, and its place in the order of all messages.

    Of two messages the one with the lower `timestamp` comes first at every topic that gets both.
    """

    message_id: str
    timestamp: MessageTimestamp


class Waits(Protocol):
    """Says why the message of a future isn't delivered after so many seconds, and what to do."""

    def __call__(self, future: Future[Sent], seconds: float | None) -> str: ...


class SentFuture(LateFuture[Sent]):
    """Resolves when a topic has got the message."""

    __slots__ = ("waits",)

    #: None until the receipt, or the error, comes.
    _outcome: Sent | PubSubError | None

    def __init__(self, waits: Waits) -> None:
        self.waits = waits
        self._outcome = self._waiting = None

    def _explain(self, timeout: float | None) -> str:
        return self.waits(self, timeout)

    @property
    def _result(self) -> Sent | None:  # type: ignore[override]
        return self._outcome if isinstance(self._outcome, Sent) else None


class IdFuture(Future[str]):
    """Resolves to the id of a message that a `SentFuture` is for."""

    def __init__(self, sent: SentFuture) -> None:
        super().__init__()
        self._sent = sent
        self.set_running_or_notify_cancel()
        sent.add_done_callback(self._settle)

    def result(self, timeout: float | None = None) -> str:
        """Returns the message's id; raises the error of the publish, or `TimeoutError`."""
        try:
            return super().result(timeout)
        except TimeoutError:
            raise TimeoutError(self._sent.waits(self._sent, timeout)) from None

    def _settle(self, sent: Future[Sent]) -> None:
        error = sent.exception()
        if error is None:
            self.set_result(sent.result().message_id)
        else:
            self.set_exception(error)


def resolve(
    futures: Sequence[SentFuture], outcomes: Sequence[Sent | PubSubError], lock: threading.Lock
) -> None:
    """Gives futures of one publisher, whose lock this is, their outcomes, except for those that have one already."""
    waited_for = []
    with lock:
        for future, outcome in zip(futures, outcomes, strict=True):
            if future._outcome is None:
                future._outcome = outcome
                if future._waiting is not None:
                    waited_for.append((future, future._waiting))
    for future, waiting in waited_for:
        future._tell(waiting)
