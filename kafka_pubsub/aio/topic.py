"""A handle on a topic, for coroutines."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from functools import partial
from typing import Unpack

from kafka_pubsub.aio.publish_queue import PublishLine
from kafka_pubsub.aio.threads import run_on_thread
from kafka_pubsub.config import Batching, PublishFlow, TopicOptions
from kafka_pubsub.errors import DeadlineExceeded, PubSubError
from kafka_pubsub.looks.tail import PAUSE, tail_of
from kafka_pubsub.model import Message
from kafka_pubsub.options import PublishOptions
from kafka_pubsub.payloads import encode_json
from kafka_pubsub.publish.due import NOW
from kafka_pubsub.publish.many import PublishItem, read_items
from kafka_pubsub.topic import Topic as SyncTopic
from kafka_pubsub.topics.key_places import KeyPlaces

__all__ = ["Topic"]


class Topic:
    """A handle on a topic; `PubSub.topic` and `PubSub.create_topic` return one.

    Example:
        futures = [topic.publish(body, ordering_key="user-123") for body in bodies]
        message_ids = await asyncio.gather(*futures)
    """

    __slots__ = ("_line", "_sync")

    def __init__(self, sync: SyncTopic, line: PublishLine) -> None:
        self._sync = sync
        self._line = line

    @property
    def name(self) -> str:
        """The topic's name, which is also the Kafka topic's."""
        return self._sync.name

    async def options(self) -> TopicOptions:
        """Reads the stored configuration from the catalog, and returns it."""
        return await asyncio.to_thread(lambda: self._sync.options)

    async def tail(self, max_messages: int = 10, *, follow: bool = False) -> AsyncIterator[Message]:
        """Yields the newest messages, without a group; see `kafka_pubsub.Topic.tail`."""
        tail = await asyncio.to_thread(lambda: tail_of(self._sync._admin(), self.name))
        try:
            some = await asyncio.to_thread(tail.newest, max_messages)
            while True:
                for message in some:
                    yield message
                if not follow:
                    return
                some = await asyncio.to_thread(lambda: list(tail.more()))
                await asyncio.sleep(0 if some else PAUSE)
        finally:
            await asyncio.to_thread(tail.close)

    async def lanes(self) -> list[str]:
        """Returns the Kafka topics of the lanes that were used, the topic's own first."""
        return await asyncio.to_thread(lambda: self._sync.lanes)

    @property
    def given_up(self) -> int:
        """How many transient messages of this process failed, most of them because no broker answered in time."""
        return self._sync.given_up

    async def key_places(self) -> KeyPlaces | None:
        """Checks with a sample of the records whether keys lie in the partitions that `publish` would choose.

        The answer's `advice` says what is wrong and what to do; it is None if nothing is wrong. Returns None if the
        topic couldn't be read.
        """
        return await asyncio.to_thread(self._sync.key_places)

    async def adopted(self) -> bool:
        """Returns whether the topic was adopted (`adopt_topic`): then `delete` leaves the Kafka topic as it is."""
        return await asyncio.to_thread(lambda: self._sync.adopted)

    def publish(self, data: bytes, **options: Unpack[PublishOptions]) -> asyncio.Future[str]:
        """Queues a message, and returns a future that resolves to its id when all in-sync replicas have it.

        Messages of a key are published in the order of the calls, awaited or not. Errors about wrong arguments are
        raised by the call, or by the future if the message has to wait. The options are those of
        `kafka_pubsub.Topic.publish`.
        """
        loop = asyncio.get_running_loop()
        delayed = options.get("delay") is not None or options.get("deliver_at") is not None
        would_block = self._sync._would_block(
            data, options.get("priority"), options.get("durable"), delayed=delayed
        )
        send = partial(self._sync.publish, data, **options)
        return asyncio.wrap_future(self._line.publish(send, would_block), loop=loop)

    async def cancel(self, message_id: str, *, timeout: float = 10.0) -> bool:
        """Cancels a delayed message; returns whether it was in time. See `kafka_pubsub.Topic.cancel`."""
        return await asyncio.to_thread(self._sync.cancel, message_id, timeout=timeout)

    def publish_many(self, items: Iterable[bytes | PublishItem]) -> list[asyncio.Future[str]]:
        """Queues many messages in their order, and returns their futures in the order of the items.

        An item is a body, or a dict with `publish`'s arguments: `{"data": b"...", "ordering_key": "k", "attributes":
        {...}, "delay": 600, "priority": 7, "durable": False}`. All items are checked before the first is queued:
        `InvalidArgument` names the place and the field of a wrong one, and nothing is sent. If an item can't be queued,
        its future and all later ones fail; so does an item with a priority or class that the topic hasn't.

        Example:
            ids = await asyncio.gather(*topic.publish_many({"data": line, "ordering_key": "log"} for line in lines))
        """
        messages = read_items(items, self._sync._wall)
        futures: list[asyncio.Future[str]] = []
        for index, (data, key, attributes) in enumerate(messages.arguments(0, len(messages.data))):
            due, (priority, durable) = messages.dues.get(index, NOW), messages.lanes.get(index, (None, None))
            try:
                futures.append(
                    self.publish(
                        data,
                        ordering_key=key,
                        attributes=attributes,
                        delay=due.delay,
                        deliver_at=due.deliver_at,
                        priority=priority,
                        durable=durable,
                    )
                )
            except PubSubError as error:
                if not futures:
                    raise
                failed = asyncio.get_running_loop().create_future()
                failed.set_exception(error)
                return futures + [failed] * (len(messages.data) - len(futures))
        return futures

    def publish_json(self, obj: object, **options: Unpack[PublishOptions]) -> asyncio.Future[str]:
        """Publishes `obj` as compact JSON in UTF-8; `message.json()` gives it back. The options are `publish`'s."""
        return self.publish(encode_json(obj), **options)

    def publish_record(self, obj: object, **options: Unpack[PublishOptions]) -> asyncio.Future[str]:
        """Publishes `obj` by the topic's schema; `message.record()` gives it back. The options are `publish`'s.

        What doesn't fit is raised by the call, or by the future if the schema isn't known yet. See
        `kafka_pubsub.Topic.publish_record`.
        """
        writer = self._sync._records().ready_writer(self.name, obj)
        if writer is not None:
            return self.publish(writer.encode_into(obj, options), **options)
        send = partial(self._sync.publish_record, obj, **options)
        return asyncio.wrap_future(self._line.publish(send, True), loop=asyncio.get_running_loop())

    async def resume(self, ordering_key: str) -> None:
        """Allows publishing again with a key that a failed publish has paused."""
        await asyncio.to_thread(self._sync.resume, ordering_key)

    async def flush(self, timeout: float | None = None) -> None:
        """Waits until every message published so far is stored or has failed.

        Raises `DeadlineExceeded` after `timeout` seconds (None: no limit).
        """
        await run_on_thread(lambda: self._flush(timeout))

    def _flush(self, timeout: float | None) -> None:
        until = None if timeout is None else time.monotonic() + timeout
        if not self._line.wait(timeout):
            raise DeadlineExceeded(f"flush: messages of topic {self.name!r} still wait for their turn")
        self._sync.flush(None if until is None else max(0.0, until - time.monotonic()))

    async def configure(
        self,
        *,
        batching: Batching | None = None,
        flow: PublishFlow | None = None,
        message_ordering: bool | None = None,
    ) -> None:
        """Changes how this process publishes to the topic, and the topic's stored `message_ordering`."""
        await asyncio.to_thread(
            self._sync.configure, batching=batching, flow=flow, message_ordering=message_ordering
        )

    async def delete(self) -> bool:
        """Deletes the topic and its messages; its subscriptions become detached.

        Returns True if the topic was adopted: then Kafka keeps it and its messages.
        """
        return await asyncio.to_thread(self._sync.delete)

    def __repr__(self) -> str:
        return f"<aio {self._sync!r}>"
