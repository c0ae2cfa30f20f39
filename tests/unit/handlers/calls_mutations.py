"""Rules of handlers, each taken out; a scene of `test_calls_mutations.py` must notice each."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from kafka_pubsub import Drop, Message, Retry
from kafka_pubsub.handlers.calls import Calls
from kafka_pubsub.handlers.results import Results

__all__ = ["MUTATIONS", "Patch"]

Patch = pytest.MonkeyPatch


def wrong_body_nacks(patch: Patch) -> None:
    """A body that doesn't fit is tried again."""

    def reject(self: Calls, message: Message, error: Exception) -> None:
        message.nack()

    patch.setattr(Calls, "_reject", reject)


def acked_before_the_value(patch: Patch) -> None:
    """The message is acked before its value is published."""
    publish = Results.publish

    def too_late(self: Results, message: Message, value: object) -> None:
        message.ack()
        publish(self, message, value)

    patch.setattr(Results, "publish", too_late)


def drop_forgets_the_ack(patch: Patch) -> None:
    """A dropped message isn't acked."""
    settled = Calls._settled

    def forgetful(self: Calls, messages: Sequence[Message], error: Exception) -> bool:
        return True if isinstance(error, Drop) else settled(self, messages, error)

    patch.setattr(Calls, "_settled", forgetful)


def retry_without_its_delay(patch: Patch) -> None:
    """`Retry(delay=)` is an ordinary nack."""
    settled = Calls._settled

    def hasty(self: Calls, messages: Sequence[Message], error: Exception) -> bool:
        if isinstance(error, Retry):
            error.delay = None
        return settled(self, messages, error)

    patch.setattr(Calls, "_settled", hasty)


def value_without_its_key(patch: Patch) -> None:
    """A value is published without the key of its message."""
    send = Results._send
    patch.setattr(Results, "_send", lambda self, key, value: send(self, None, value))


#: Each mutation and the scene that must notice it.
MUTATIONS: dict[Callable[[Patch], None], str] = {
    wrong_body_nacks: "wrong_body",
    acked_before_the_value: "failing_value",
    drop_forgets_the_ack: "drop",
    retry_without_its_delay: "retry",
    value_without_its_key: "failing_value",
}
