"""Completion of the names of topics and subscriptions in a shell, from the catalog.

Rules
1. Completion is silent: without an address, an answer in time or the right to read, there is nothing to choose from.
2. The catalog is read on a thread, so that the shell waits `PATIENCE` seconds at most.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from kafka_pubsub.cli.context import Session

if TYPE_CHECKING:
    from kafka_pubsub.app import PubSub

__all__ = ["subscriptions", "topics"]

#: Seconds that a person waits for a completion.
PATIENCE = 2.0


def topics(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Returns the topics whose names begin so."""
    return _beginning(ctx, incomplete, lambda pubsub: (each.name for each in pubsub.list_topics()))


def subscriptions(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Returns the subscriptions whose names begin so."""
    return _beginning(ctx, incomplete, lambda pubsub: (each.name for each in pubsub.list_subscriptions()))


def _beginning(ctx: click.Context, incomplete: str, read: Callable[[PubSub], Iterable[str]]) -> list[str]:
    session = ctx.ensure_object(Session)
    found: list[str] = []
    done = threading.Event()

    def look() -> None:
        with suppress(Exception), session.pubsub() as pubsub:
            found.extend(read(pubsub))
            done.set()
        done.set()

    threading.Thread(target=look, name="kafka_pubsub-completion", daemon=True).start()
    done.wait(PATIENCE)
    return sorted(name for name in found.copy() if name.startswith(incomplete))
