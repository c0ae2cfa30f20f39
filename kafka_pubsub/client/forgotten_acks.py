"""A warning when a message was neither acked nor nacked: a callback that forgets to ack gets all messages again.

Rules
1. It is said once for each subscription of a `PubSub`, of the first message.
2. It is said when the ack deadline has passed, and not when the callback returns: another thread may ack until then.
3. It is also said when a stream is closed while a message is kept. For `receive` it isn't: that was a look.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Sequence
from typing import cast

from kafka_pubsub.core.effects import Effect, Withdraw
from kafka_pubsub.core.leases import Lease, LeaseState
from kafka_pubsub.model import Message, MessageSink, StoredRecord

__all__ = ["ForgottenAcks"]

log = logging.getLogger("kafka_pubsub.subscriber")


class ForgottenAcks:
    """Warns of one stream. `said` is set when the warning was logged; the streams of a subscription share it."""

    def __init__(self, subscription: str, said: threading.Event, *, at_close: bool) -> None:
        self._subscription = subscription
        self._said = said
        self._at_close = at_close

    def expiring(self, effects: Sequence[Effect]) -> None:
        """Deadlines have passed."""
        if self._said.is_set():
            return
        for effect in effects:
            for lease in effect.leases if isinstance(effect, Withdraw) else ():
                if lease.state is LeaseState.OVER:  # else its handler still runs
                    self._say(lease, "its ack deadline has passed")

    def closing(self, leases: Iterable[Lease]) -> None:
        """The stream ends, and these leases end with it."""
        if self._at_close:
            for lease in leases:
                if lease.state is LeaseState.KEPT:
                    self._say(lease, "its stream was closed")

    def _say(self, lease: Lease, why: str) -> None:
        if self._said.is_set():
            return
        self._said.set()
        message = Message(cast("StoredRecord", lease.records[lease.done]), cast("MessageSink", lease.holder))
        key = message.ordering_key
        log.warning(
            "subscription %r: message %s%s was neither acked nor nacked, and %s, so it is delivered again. For each "
            "message call message.ack() when the work is done, message.nack() to have it delivered again, or "
            "message.extend(seconds) while the work goes on. This warning is logged once for each subscription.",
            self._subscription,
            message.message_id,
            "" if key is None else f" with ordering key {key!r}",
            why,
        )
