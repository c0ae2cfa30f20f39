"""The dead-letter functions of a subscription's handle, for dead, parked and waiting messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kafka_pubsub.dead_letters.release import Releases
from kafka_pubsub.dead_letters.replay import DeadLetters
from kafka_pubsub.log.ports import Backend
from kafka_pubsub.subscribe.admin.subscriptions import SubscriptionAdmin
from kafka_pubsub.subscribe.retry_topic.key_states import KeyState, key_states

__all__ = ["DeadLetterOperations", "open_dead_letters"]


class DeadLetterOperations(NamedTuple):
    """The dead-letter functions of one cluster."""

    dead_letters: DeadLetters
    releases: Releases
    keys: Callable[[str], list[KeyState]]


def open_dead_letters(
    backend: Backend, subscriptions: SubscriptionAdmin, *, may_create: bool
) -> DeadLetterOperations:
    """Builds the functions; connects to nothing yet."""
    dead_letters = DeadLetters(backend, subscriptions, may_create=may_create)
    releases = Releases(backend, subscriptions, dead_letters, may_create=may_create)

    def keys(name: str) -> list[KeyState]:
        views = dead_letters.views(subscriptions.record(name))
        return [state for view in views for state in key_states(backend, view)]

    return DeadLetterOperations(dead_letters, releases, keys)
