"""What a subscription's handle asks about its dead, parked and waiting messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kafka_pubsub.client.admin.subscriptions import SubscriptionAdmin
from kafka_pubsub.client.dead_letters.key_states import KeyState, key_states
from kafka_pubsub.client.dead_letters.release import Releases
from kafka_pubsub.client.dead_letters.replay import DeadLetters
from kafka_pubsub.ports import Backend

__all__ = ["DeadLetterOperations", "open_desk"]


class DeadLetterOperations(NamedTuple):
    """All of it, over one cluster."""

    letters: DeadLetters
    releases: Releases
    keys: Callable[[str], list[KeyState]]


def open_desk(
    backend: Backend, subscriptions: SubscriptionAdmin, *, may_create: bool
) -> DeadLetterOperations:
    """Connects to nothing yet."""
    letters = DeadLetters(backend, subscriptions, may_create=may_create)
    releases = Releases(backend, subscriptions, letters, may_create=may_create)
    return DeadLetterOperations(
        letters, releases, lambda name: key_states(backend, subscriptions.record(name))
    )
