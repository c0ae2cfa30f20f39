"""Makes or checks what a handler needs on the cluster: its topics and its subscription.

Rules
1. "create" makes what is missing and changes nothing that exists. "check" raises one error that names all that is
   missing. "never" asks for nothing.
2. Processes that start at the same time may make the same thing: what another one is making at this moment is tried
   again.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from kafka_pubsub.errors import FailedPrecondition, NotFound
from kafka_pubsub.handlers.handler import Handler
from kafka_pubsub.options import Start

if TYPE_CHECKING:
    from kafka_pubsub.app import PubSub

__all__ = ["TEST_PARTITIONS", "again", "ensure", "ensure_topic"]

T = TypeVar("T")

#: Partitions of a topic that a test makes: more cost a test time, and one would hide that there are several.
TEST_PARTITIONS = 2
#: Tries of what another process may be making, and the seconds between them.
_TRIES, _PAUSE = 8, 0.25


def ensure_topic(ps: PubSub, name: str, *, partitions: int | None = None) -> None:
    """Makes a topic if it doesn't exist, by default with as many partitions as `create_topic` gives it."""
    again(lambda: _create_topic(ps, name, partitions))


def _create_topic(ps: PubSub, name: str, partitions: int | None) -> None:
    try:
        _options_of(ps, name)
    except NotFound:
        ps.create_topic(name, partitions=partitions, exist_ok=True)


def ensure(ps: PubSub, handler: Handler, *, create: bool = False) -> None:
    """Makes or checks what the handler needs; `create` (default False): for a test.

    A test makes what is missing whatever the handler says, and begins with its own messages.
    """
    if handler.ensure == "never" and not create:
        return
    if handler.ensure == "create" or create:
        for name in handler.topics:
            ensure_topic(ps, name, partitions=TEST_PARTITIONS if create else None)
        again(lambda: _create_subscription(ps, handler, "latest" if create else handler.start))
    else:
        _check(ps, handler)
    _check_policies(ps, handler)


def _create_subscription(ps: PubSub, handler: Handler, start: Start) -> None:
    ps.create_subscription(handler.name, handler.topic, start=start, exist_ok=True, **handler.settings)


def again(make: Callable[[], T]) -> T:
    """Makes something, and tries again while another process makes the same."""
    for left in reversed(range(_TRIES)):
        try:
            return make()
        except FailedPrecondition as error:
            if not left or "at this moment" not in error.message:
                raise
        time.sleep(random.uniform(0, 2 * _PAUSE))
    raise AssertionError("unreachable")


def _check(ps: PubSub, handler: Handler) -> None:
    missing = [text for name in handler.topics for text in _missing(partial(_options_of, ps, name))]
    missing += _missing(lambda: ps.subscription(handler.name).options)
    if missing:
        raise NotFound(
            f"{handler.where}: "
            + "; ".join(missing)
            + "; or declare it with ensure='create', which makes them"
        )


def _options_of(ps: PubSub, topic: str) -> object:
    return ps.topic(topic).options


def _missing(look: Callable[[], object]) -> list[str]:
    """Returns the text of what the look doesn't find."""
    try:
        look()
    except NotFound as error:
        return [error.message]
    return []


def _check_policies(ps: PubSub, handler: Handler) -> None:
    """Refuses settings of the cluster with which the handler can't work."""
    if handler.dead_letter_on and ps.subscription(handler.name).options.dead_letter is None:
        raise FailedPrecondition(
            f"{handler.where}: dead_letter_on names exceptions whose messages become dead letters, and the "
            "subscription has no dead-letter topic: give dead_letter=DeadLetterPolicy(topic=...)"
        )
    if handler.to is not None and ps.topic(handler.to).options.message_ordering is False:
        raise FailedPrecondition(
            f"{handler.where}: to={handler.to!r} refuses ordering keys (message_ordering=False), and values are "
            "published under their message's key: allow them with update_topic, or name another topic"
        )
    if handler.topic != (there := ps.subscription(handler.name).topic):
        raise FailedPrecondition(
            f"{handler.where}: subscription {handler.name!r} is on topic {there!r}, not {handler.topic!r}"
        )
