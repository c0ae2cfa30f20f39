"""The future of a message to causal topics.

Rules
1. The first outcome counts. Outcomes are stored under the publisher's lock, and read without it.
2. Done-callbacks run on a thread of their own: the publisher's threads resolve what a callback may wait for.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, TypeVar

from kafka_pubsub.errors import PubSubError
from kafka_pubsub.multicast.values import MessageTimestamp
from kafka_pubsub.publish.flow_control import Callbacks
from kafka_pubsub.publish.future import LateFuture

__all__ = ["IdFuture", "Sent", "SentFuture", "SentOwner", "resolve"]

T = TypeVar("T")


class Sent(NamedTuple):
    """What the future of `publish_multi` gives: the message's id, and its place in the order of all messages.

    Of two messages the one with the lower `timestamp` comes first at every topic that gets both.
    """

    message_id: str
    timestamp: MessageTimestamp


class SentOwner(Protocol):
    """The part of the publisher that its futures need."""

    @property
    def callbacks(self) -> Callbacks: ...
    def waits(self, future: object, seconds: float | None) -> str:
        """Returns why the message of a future isn't delivered after so many seconds, and what to do."""


class _CausalFuture(LateFuture[T]):
    """Resolves when a topic has got the message."""

    __slots__ = ("owner",)

    #: None until the receipt, or the error, comes.
    _outcome: Sent | PubSubError | None

    def __init__(self, owner: SentOwner) -> None:
        self.owner = owner
        self._outcome = self._waiting = None

    def _run(self, callbacks: Callable[[], None]) -> None:
        self.owner.callbacks.run(callbacks)

    def _explain(self, timeout: float | None) -> str:
        return self.owner.waits(self, timeout)


class SentFuture(_CausalFuture[Sent]):
    """The future of `publish_multi`."""

    __slots__ = ()

    @property
    def _result(self) -> Sent | None:  # type: ignore[override]
        return self._outcome if isinstance(self._outcome, Sent) else None


class IdFuture(_CausalFuture[str]):
    """The future of a message to one causal topic: it gives the message's id."""

    __slots__ = ()

    @property
    def _result(self) -> str | None:  # type: ignore[override]
        return self._outcome.message_id if isinstance(self._outcome, Sent) else None


def resolve(
    futures: Sequence[SentFuture | IdFuture], outcomes: Sequence[Sent | PubSubError], lock: threading.Lock
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
