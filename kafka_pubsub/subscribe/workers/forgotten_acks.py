"""A warning when a message was neither acked nor nacked: a callback that forgets to ack gets all messages again.

Rules
1. It is logged once for each subscription in a process, for the first message, with any number of streams.
2. It is logged when the ack deadline has passed, and not when the callback returns: another thread may ack until then.
3. It is also logged when a stream is closed while a message is kept. For `receive` it isn't: that only looks.
4. An ack after the close changes nothing, and has a warning of its own, once for each subscription.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import cast

from kafka_pubsub.config import SubscriptionRecord
from kafka_pubsub.model import Message, MessageSink, StoredRecord
from kafka_pubsub.subscribe.partition.effects import Effect, Withdraw
from kafka_pubsub.subscribe.partition.leases import Lease, LeaseState

__all__ = ["ForgottenAcks"]

log = logging.getLogger("kafka_pubsub.subscriber")

#: Subscriptions with a logged warning: their names, and the ids of their topics, which differ between clusters.
_logged: set[tuple[str, str]] = set()
#: The same for acks after the close.
_logged_late: set[tuple[str, str]] = set()


class ForgottenAcks:
    """Warns of the messages of one stream; `at_close`: also when the stream is closed."""

    def __init__(self, record: SubscriptionRecord, *, at_close: bool) -> None:
        self._subscription = (record.name, record.topic_id)
        self._at_close = at_close

    def expiring(self, effects: Sequence[Effect]) -> None:
        """Warns of messages whose deadlines have passed."""
        for effect in effects:
            for lease in effect.leases if isinstance(effect, Withdraw) else ():
                if lease.state is LeaseState.OVER:  # else its callback still runs
                    self._warn(lease, "its ack deadline has passed")

    def closing(self, leases: Iterable[Lease]) -> None:
        """Warns of messages that are kept while the stream ends."""
        if self._at_close:
            for lease in leases:
                if lease.state is LeaseState.KEPT:
                    self._warn(lease, "its stream was closed")

    def too_late(self) -> None:
        """Warns of an ack, nack or extension after the close."""
        if self._subscription in _logged_late:
            return
        _logged_late.add(self._subscription)
        log.warning(
            "subscription %r: an ack, nack or extension came after its stream, its `with` block or its membership had "
            "ended, and changed nothing. A message that wasn't finished before is delivered again. Ack before the "
            "end. This warning is logged once for each subscription.",
            self._subscription[0],
        )

    def _warn(self, lease: Lease, why: str) -> None:
        if self._subscription in _logged:
            return
        _logged.add(self._subscription)
        message = Message(
            cast("StoredRecord", lease.records[lease.done]), cast("MessageSink", lease.lease_runner)
        )
        key = message.ordering_key
        log.warning(
            "subscription %r: message %s%s was neither acked nor nacked, and %s, so it is delivered again. For each "
            "message call message.ack() when the work is done, message.nack() to have it delivered again, or "
            "message.extend(seconds) while the work goes on. This warning is logged once for each subscription.",
            self._subscription[0],
            message.message_id,
            "" if key is None else f" with ordering key {key!r}",
            why,
        )
