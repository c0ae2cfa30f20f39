"""What a `PubSub` offers for the messages that a service couldn't deliver."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

from kafka_pubsub.dead_letters.model import DeadLetterResult
from kafka_pubsub.services.dead_letters import ServiceDeadLetters

__all__ = ["ServiceCalls"]

T = TypeVar("T")


class ServiceCalls(Generic[T]):
    """Lists, replays and purges the dead letters of one service."""

    def __init__(self, letters: Callable[[], ServiceDeadLetters[T]]) -> None:
        self._letters = letters

    def dead_letters(self, *, ids: Iterable[str] | None = None, topic: str | None = None) -> Iterator[T]:
        """Yields the messages that couldn't be delivered, and that weren't replayed or purged.

        `ids` picks some, as in `letter.id`, and `topic` those that were to go there; None (the default): all.
        """
        return self._letters().find(ids, topic)

    def replay(
        self, *, ids: Iterable[str] | None = None, topic: str | None = None, dry_run: bool = False
    ) -> DeadLetterResult:
        """Sends messages that couldn't be delivered to their topics again, which must exist.

        `ids` and `topic` pick some, as in `dead_letters`. Each is delivered once: repeat a call that was interrupted.
        What still can't go stays, and is counted in `skipped`. With `dry_run` (default False) nothing is changed.
        """
        return self._letters().replay(ids, topic, dry_run=dry_run)

    def purge(
        self, *, ids: Iterable[str] | None = None, topic: str | None = None, dry_run: bool = False
    ) -> DeadLetterResult:
        """Gives messages up that couldn't be delivered: they aren't listed any more.

        `ids` and `topic` pick some, as in `dead_letters`. With `dry_run` (default False) nothing is changed.
        """
        return self._letters().purge(ids, topic, dry_run=dry_run)
