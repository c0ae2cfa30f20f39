"""`PubSub` for coroutines: it has the methods of `kafka_pubsub.PubSub`, and calls one of these on threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from os import PathLike
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self, Unpack

from kafka_pubsub.aio.publish_queue import PublishLine
from kafka_pubsub.aio.services import CausalTopics, Delays
from kafka_pubsub.aio.subscription import Subscription
from kafka_pubsub.aio.threads import close_on_thread, run_on_thread
from kafka_pubsub.aio.topic import Topic
from kafka_pubsub.app import ConfigValue
from kafka_pubsub.app import PubSub as SyncPubSub
from kafka_pubsub.flat_names import FlatNames
from kafka_pubsub.log.ports import Backend
from kafka_pubsub.multicast.future import Sent
from kafka_pubsub.options import Start, SubscriptionSettings, TopicChanges, TopicSettings
from kafka_pubsub.records.opening import SchemaPlace
from kafka_pubsub.repartition.repartition import RepartitionProgress
from kafka_pubsub.subscribe.retry_topic.lost_tails import LostTail
from kafka_pubsub.subscribe.stream.stream import CLOSE_TIMEOUT

if TYPE_CHECKING:
    from kafka_pubsub.dead_letters.model import DeadLetterMessage
    from kafka_pubsub.log.memory.clock import VirtualClock
    from kafka_pubsub.model import Message

__all__ = ["PubSub"]


class PubSub(FlatNames):
    """A client for the topics and subscriptions of one Kafka cluster, for coroutines.

    Example:
        async with PubSub("localhost:9092") as ps:
            topic = await ps.create_topic("orders", message_ordering=True)
            sub = await ps.create_subscription("billing", topic="orders", message_ordering=True)

    The arguments are those of `kafka_pubsub.PubSub`.
    """

    def __init__(
        self,
        bootstrap: str | None = None,
        *,
        config: Mapping[str, ConfigValue] | None = None,
        config_file: str | PathLike[str] | None = None,
        create: bool | None = None,
        group_protocol: Literal["classic", "consumer"] | None = None,
        history: str | PathLike[str] | None = None,
        schemas: SchemaPlace | None = None,
    ) -> None:
        sync = SyncPubSub(
            bootstrap,
            config=config,
            config_file=config_file,
            create=create,
            group_protocol=group_protocol,
            history=history,
            schemas=schemas,
        )
        self._wrap(sync)

    @classmethod
    def in_memory(
        cls,
        backend: Backend | None = None,
        *,
        clock: VirtualClock | None = None,
        create: bool = True,
        history: str | PathLike[str] | None = None,
        schemas: SchemaPlace | None = None,
        services: bool = True,
    ) -> Self:
        """Returns a `PubSub` that works in memory, for tests; see `kafka_pubsub.PubSub.in_memory`.

        Move a `clock` on a thread: `await asyncio.to_thread(clock.advance, 30)`.
        """
        self = cls.__new__(cls)
        sync = SyncPubSub.in_memory(
            backend, clock=clock, create=create, history=history, schemas=schemas, services=services
        )
        self._wrap(sync)
        return self

    def _wrap(self, sync: SyncPubSub) -> None:
        self._sync = sync
        # By topic, made with the topic's first handle. Handles share it, so that no message overtakes another.
        self._lines: dict[str, PublishLine] = {}

    # -- topics ----------------------------------------------------------------------------------------------

    async def create_topic(
        self, name: str, *, exist_ok: bool = False, **settings: Unpack[TopicSettings]
    ) -> Topic:
        """Makes a topic, by default with 8 partitions; see `kafka_pubsub.PubSub.create_topic`."""
        await asyncio.to_thread(self._sync.create_topic, name, exist_ok=exist_ok, **settings)
        return self.topic(name)

    async def adopt_topic(
        self,
        name: str,
        *,
        message_ordering: bool | None = None,
        labels: Mapping[str, str] | None = None,
        exist_ok: bool = False,
        check_keys: bool = True,
    ) -> Topic:
        """Takes a topic that Kafka already has into the catalog; see `kafka_pubsub.PubSub.adopt_topic`.

        `check_keys` (default True) looks at a sample of its records, and logs a warning if keys lie in other
        partitions than `publish` would choose; `topic.key_places()` gives the same answer at any time.
        """
        await asyncio.to_thread(
            self._sync.adopt_topic,
            name,
            message_ordering=message_ordering,
            labels=labels,
            exist_ok=exist_ok,
            check_keys=check_keys,
        )
        return self.topic(name)

    def topic(self, name: str) -> Topic:
        """Returns a handle, without checking that the topic exists."""
        return Topic(self._sync.topic(name), self._lines.setdefault(name, PublishLine()))

    async def decode(self, message: Message | DeadLetterMessage, kind: type | None = None) -> object:
        """Returns the record of a message or dead letter; see `kafka_pubsub.PubSub.decode`.

        `kind` (default None): the type as which it is returned.
        """
        return await asyncio.to_thread(
            lambda: self._sync.decode(message) if kind is None else self._sync.decode(message, kind)
        )

    async def update_topic(self, name: str, **changes: Unpack[TopicChanges]) -> Topic:
        """Changes only the settings that you give; see `kafka_pubsub.PubSub.update_topic`."""
        await asyncio.to_thread(self._sync.update_topic, name, **changes)
        return self.topic(name)

    async def repartition_topic(
        self,
        name: str,
        partitions: int,
        *,
        timeout: float | None = None,
        on_progress: Callable[[RepartitionProgress], object] | None = None,
    ) -> Topic:
        """Gives a topic more partitions; `on_progress` is called on the loop.

        See `kafka_pubsub.PubSub.repartition_topic`. A cancelled call goes on in its thread; a new call joins it.
        """
        loop = asyncio.get_running_loop()

        def tell(progress: RepartitionProgress) -> None:
            if on_progress is not None:
                loop.call_soon_threadsafe(on_progress, progress)

        await run_on_thread(
            lambda: self._sync.repartition_topic(name, partitions, timeout=timeout, on_progress=tell)
        )
        return self.topic(name)

    async def repartition_progress(self, name: str) -> RepartitionProgress | None:
        """Returns how far a change of the topic's partitions is; None if no change is under way."""
        return await asyncio.to_thread(self._sync.repartition_progress, name)

    @property
    def delays(self) -> Delays:
        """Returns the delayed messages of all topics; see `kafka_pubsub.PubSub.delays`."""
        return Delays(self._sync.delays)

    @property
    def multicast(self) -> CausalTopics:
        """Returns the causal topics; see `kafka_pubsub.PubSub.multicast`."""
        return CausalTopics(self._sync.multicast)

    async def publish_multi(
        self,
        topics: Iterable[str | Topic],
        data: bytes,
        *,
        ordering_key: str | None = None,
        attributes: Mapping[str, str] | None = None,
        handles: Iterable[str | Topic] = (),
    ) -> asyncio.Future[Sent]:
        """Queues one message to several causal topics; see `kafka_pubsub.PubSub.publish_multi`.

        Awaiting the call queues the message; awaiting its result waits for the message's place in the order.
        """
        sent = await asyncio.to_thread(
            self._sync.publish_multi,
            _names(topics),
            data,
            ordering_key=ordering_key,
            attributes=attributes,
            handles=_names(handles),
        )
        return asyncio.wrap_future(sent)

    async def delete_topic(self, name: str, *, notify: Iterable[str | Topic] = ()) -> bool:
        """Deletes a topic and its messages; its subscriptions become detached.

        `notify` (default none): causal topics that get a message about it, if the topic is causal.
        An adopted topic is removed from the catalog only: Kafka keeps it and its messages. Then the call returns
        True, and logs it too.
        """
        return await asyncio.to_thread(self._sync.delete_topic, name, notify=_names(notify))

    async def list_topics(self) -> list[Topic]:
        """Returns all topics of the catalog, sorted by name."""
        return [self.topic(each.name) for each in await asyncio.to_thread(self._sync.list_topics)]

    # -- subscriptions ---------------------------------------------------------------------------------------

    async def create_subscription(
        self,
        name: str,
        topic: str | Topic,
        *,
        start: Start = "latest",
        exist_ok: bool = False,
        **settings: Unpack[SubscriptionSettings],
    ) -> Subscription:
        """Makes a subscription, which begins at `start`; see `kafka_pubsub.PubSub.create_subscription`."""
        home = topic.name if isinstance(topic, Topic) else topic
        await asyncio.to_thread(
            self._sync.create_subscription, name, home, start=start, exist_ok=exist_ok, **settings
        )
        return self.subscription(name)

    def subscription(self, name: str) -> Subscription:
        """Returns a handle, without checking that the subscription exists."""
        return Subscription(self._sync.subscription(name))

    async def update_subscription(
        self, name: str, *, remake_retry_topic: bool = False, **changes: Unpack[SubscriptionSettings]
    ) -> Subscription:
        """Changes only the settings that you give; see `kafka_pubsub.PubSub.update_subscription`."""
        await asyncio.to_thread(
            self._sync.update_subscription, name, remake_retry_topic=remake_retry_topic, **changes
        )
        return self.subscription(name)

    async def recover_subscription(
        self, name: str, *, start: Literal["oldest", "end"] = "oldest"
    ) -> list[LostTail]:
        """Repairs the positions after a log has lost records; see `kafka_pubsub.PubSub.recover_subscription`."""
        return await asyncio.to_thread(self._sync.recover_subscription, name, start=start)

    async def delete_subscription(self, name: str) -> None:
        """Deletes a subscription, its position and its retry topic; its streams end with `NotFound`."""
        await close_on_thread(lambda: self._sync.delete_subscription(name))

    async def list_subscriptions(self) -> list[Subscription]:
        """Returns all subscriptions of the catalog, sorted by name."""
        found = await asyncio.to_thread(self._sync.list_subscriptions)
        return [self.subscription(each.name) for each in found]

    # -- the end ---------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Closes streams, flushes publishers and disconnects. A second call does nothing."""
        await close_on_thread(self._close)

    def _close(self) -> None:
        # One after the other: nearly all of these queues are empty.
        for line in self._lines.values():
            line.wait(CLOSE_TIMEOUT)
        self._sync.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<aio {self._sync!r}>"


def _names(topics: Iterable[str | Topic]) -> Iterable[str]:
    if isinstance(topics, (str, bytes)):
        return topics
    return [each.name if isinstance(each, Topic) else each for each in topics]
