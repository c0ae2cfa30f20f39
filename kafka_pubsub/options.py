"""The options that several methods take, written once for `kafka_pubsub`, `kafka_pubsub.aio` and the commands.

A method takes them as `**settings: Unpack[...]`. So a type checker refuses a wrong name and a wrong type, and the call
refuses a wrong name too. The docstring of each group names the method that explains its options.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from os import PathLike
from typing import Literal, TypedDict

from kafka_pubsub.config import DeadLetterPolicy, RetryPolicy, TopicSchema

__all__ = [
    "LetterSelection",
    "PublishOptions",
    "Seconds",
    "Start",
    "SubscriptionSettings",
    "TopicChanges",
    "TopicSettings",
    "check_names",
]

Seconds = float | timedelta

#: Where a new subscription begins (`PubSub.create_subscription`).
Start = Literal["latest", "earliest"] | datetime | timedelta


class TopicChanges(TypedDict, total=False):
    """The settings that `PubSub.update_topic` changes; None is a setting's default."""

    message_ordering: bool | None
    retention: Seconds | None
    priorities: int | None
    transient: bool | None
    schema: str | PathLike[str] | type | TopicSchema | None
    labels: Mapping[str, str] | None


class TopicSettings(TopicChanges, total=False):
    """The settings of a new topic; `PubSub.create_topic` explains each. None is a setting's default."""

    partitions: int | None
    replication: int | None
    causal: bool | None


class SubscriptionSettings(TypedDict, total=False):
    """A subscription's settings; `PubSub.create_subscription` explains each. None is a setting's default."""

    ack_deadline: Seconds | None
    max_extension: Seconds | None
    message_ordering: bool | None
    retry: RetryPolicy | None
    dead_letter: DeadLetterPolicy | None
    exactly_once: bool | None
    ageing: Seconds | None
    strict: bool | None
    labels: Mapping[str, str] | None


class PublishOptions(TypedDict, total=False):
    """What a message has beside its body; `Topic.publish` explains each. None is an option's default."""

    ordering_key: str | None
    attributes: Mapping[str, str] | None
    delay: float | timedelta | None
    deliver_at: datetime | None
    priority: int | None
    durable: bool | None


class LetterSelection(TypedDict, total=False):
    """Which dead letters, or waiting messages, are meant; `Subscription.dead_letters` explains each.

    None, the default of each, doesn't restrict.
    """

    keys: Iterable[str | bytes] | None
    ids: Iterable[str] | None
    since: datetime | None
    until: datetime | None
    error: str | None


def check_names(call: str, settings: Mapping[str, object], known: frozenset[str]) -> None:
    """Raises `TypeError`, as Python does for a wrong argument, if a setting isn't among the known names."""
    for name in settings.keys() - known:
        near = difflib.get_close_matches(name, known, 1)
        meant = f". Did you mean {near[0]!r}?" if near else ""
        raise TypeError(f"{call}() got an unexpected keyword argument {name!r}{meant}")
