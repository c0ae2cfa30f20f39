"""The asyncio versions of `ps.delays` and `ps.multicast`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from itertools import islice
from typing import Generic, TypeVar

from kafka_pubsub.aio.topic import Topic
from kafka_pubsub.dead_letters.model import DeadLetterResult
from kafka_pubsub.delays.calls import Delays as SyncDelays
from kafka_pubsub.delays.dead_letters import DelayDeadLetter
from kafka_pubsub.delays.waiting import WaitingMessage
from kafka_pubsub.multicast.calls import CausalTopics as SyncCausalTopics
from kafka_pubsub.multicast.dead_letters import MulticastDeadLetter
from kafka_pubsub.multicast.status import CausalStatus
from kafka_pubsub.services.calls import ServiceCalls
from kafka_pubsub.subscribe.dead_letters.scan import AT_ONCE

__all__ = ["CausalTopics", "Delays"]

T = TypeVar("T")


class _ServiceCalls(Generic[T]):
    """Lists, replays and purges the dead letters of one service; see `kafka_pubsub.PubSub`."""

    def __init__(self, sync: ServiceCalls[T]) -> None:
        self._letters = sync

    async def dead_letters(
        self, *, ids: Iterable[str] | None = None, topic: str | None = None
    ) -> AsyncIterator[T]:
        """Yields the messages that couldn't be delivered, and that weren't replayed or purged."""
        found = self._letters.dead_letters(ids=ids, topic=topic)
        while some := await asyncio.to_thread(lambda: list(islice(found, AT_ONCE))):
            for dead_letter in some:
                yield dead_letter

    async def replay(
        self, *, ids: Iterable[str] | None = None, topic: str | None = None, dry_run: bool = False
    ) -> DeadLetterResult:
        """Sends messages that couldn't be delivered to their topics again, which must exist."""
        return await asyncio.to_thread(self._letters.replay, ids=ids, topic=topic, dry_run=dry_run)

    async def purge(
        self, *, ids: Iterable[str] | None = None, topic: str | None = None, dry_run: bool = False
    ) -> DeadLetterResult:
        """Gives messages up that couldn't be delivered: they aren't listed any more."""
        return await asyncio.to_thread(self._letters.purge, ids=ids, topic=topic, dry_run=dry_run)


class Delays(_ServiceCalls[DelayDeadLetter]):
    """The delayed messages of a cluster; `PubSub.delays` gives it."""

    def __init__(self, sync: SyncDelays) -> None:
        super().__init__(sync)
        self._sync = sync

    async def waiting(
        self,
        message_id: str | None = None,
        *,
        bodies: bool = False,
        on_read: Callable[[int], object] = lambda count: None,
    ) -> AsyncIterator[WaitingMessage]:
        """Yields the delayed messages that wait; with a `message_id` only that one, with its data."""
        for each in await asyncio.to_thread(
            lambda: list(self._sync.waiting(message_id, bodies=bodies, on_read=on_read))
        ):
            yield each

    async def cancel(self, message_id: str, *, timeout: float = 10.0) -> bool:
        """Cancels a delayed message of any topic; see `kafka_pubsub.Topic.cancel`."""
        return await asyncio.to_thread(self._sync.cancel, message_id, timeout=timeout)

    async def routers(self) -> int:
        """Counts the delay routers that run now, in any process; without one, delayed messages wait on."""
        return await asyncio.to_thread(self._sync.routers)


class CausalTopics(_ServiceCalls[MulticastDeadLetter]):
    """The causal topics of a cluster; `PubSub.multicast` gives it."""

    def __init__(self, sync: SyncCausalTopics) -> None:
        super().__init__(sync)
        self._sync = sync

    async def status(
        self, topic: str | Topic | None = None, *, on_read: Callable[[int], object] = lambda count: None
    ) -> list[CausalStatus]:
        """Returns how the partitions of a causal topic are, or of all: what waits there, and for what."""
        return await asyncio.to_thread(self._sync.status, topic, on_read=on_read)

    async def sequencers(self) -> int:
        """Counts the sequencers that run now, in any process; without one, messages to causal topics wait on."""
        return await asyncio.to_thread(self._sync.sequencers)
