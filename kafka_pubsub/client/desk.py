"""What a subscription's handle asks about its dead, parked and waiting messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kafka_pubsub.client.key_states import KeyState, key_states
from kafka_pubsub.client.ports import Backend
from kafka_pubsub.client.releasing import Releases
from kafka_pubsub.client.replaying import DeadLetters
from kafka_pubsub.client.subscription_admin import SubscriptionAdmin

__all__ = ["Desk", "open_desk"]


class Desk(NamedTuple):
    """All of it, over one cluster."""

    letters: DeadLetters
    releases: Releases
    keys: Callable[[str], list[KeyState]]


def open_desk(backend: Backend, subscriptions: SubscriptionAdmin, *, may_create: bool) -> Desk:
    """Connects to nothing yet."""
    letters = DeadLetters(backend, subscriptions, may_create=may_create)
    releases = Releases(backend, subscriptions, letters, may_create=may_create)
    return Desk(letters, releases, lambda name: key_states(backend, subscriptions.record(name)))
