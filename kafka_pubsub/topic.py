"""The handle on a topic, through which you publish.

Rules
1. Making a handle does no I/O; the first publish looks up the topic, and raises `NotFound` if it doesn't exist.
2. All handles of one `PubSub` on one topic share one publisher, so the order of a key doesn't depend on the handle.
3. Options that aren't built yet are refused, never ignored.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, TypedDict, Unpack

from kafka_pubsub.config import Batching, PublishFlow, TopicOptions
from kafka_pubsub.looks.tail import tail_of
from kafka_pubsub.options import PublishOptions
from kafka_pubsub.payloads import encode_json
from kafka_pubsub.publish.many import PublishFutures, PublishItem, read_items
from kafka_pubsub.topics.topics import TopicAdmin

if TYPE_CHECKING:
    from kafka_pubsub.delays.publisher import DelayedPublisher
    from kafka_pubsub.lanes.home_publisher import HomePublisher
    from kafka_pubsub.model import Message
    from kafka_pubsub.multicast.multicast import Multicast
    from kafka_pubsub.records.records import Records, RecordWriter
    from kafka_pubsub.topics.key_places import KeyPlaces

__all__ = ["Topic", "names_of", "new_topic", "use"]


class TopicParts(TypedDict):
    """The calls of a handle."""

    admin: Callable[[], TopicAdmin]
    publisher: Callable[[], HomePublisher]
    publishers: Mapping[str, HomePublisher]
    delayed: Callable[[], DelayedPublisher]
    multicast: Callable[[], Multicast]
    delete: Callable[[], bool]
    records: Callable[[], Records]
    wall: Callable[[], float]


class Topic:
    """A topic by name; made by `PubSub.topic` and `PubSub.create_topic`.

    Example:
        topic = ps.topic("orders")
        future = topic.publish(b"...", ordering_key="user-123", attributes={"kind": "created"})
        message_id = future.result(timeout=10)
    """

    __slots__ = (
        "_admin",
        "_delayed",
        "_delete",
        "_multicast",
        "_name",
        "_publisher",
        "_publishers",
        "_records",
        "_wall",
    )

    def __init__(
        self,
        name: str,
        **parts: Unpack[TopicParts],
    ) -> None:
        self._name = name
        self._admin = parts["admin"]
        self._publisher = parts["publisher"]
        # The open ones, as they are now: a look that costs a message less than the call.
        self._publishers = parts["publishers"]
        self._delayed = parts["delayed"]
        self._multicast = parts["multicast"]
        self._delete = parts["delete"]
        self._records = parts["records"]
        self._wall = parts["wall"]

    @property
    def name(self) -> str:
        """Returns the topic's name, which is also the Kafka topic's."""
        return self._name

    @property
    def options(self) -> TopicOptions:
        """The stored configuration, read from the catalog now."""
        return self._admin().record(self._name).options

    def key_places(self) -> KeyPlaces | None:
        """Looks at a sample of what is stored: whether keys lie in the partitions that publishing puts them into.

        `advice` of the answer says what is wrong, and what to do; None if nothing is. It reads up to 1,000 records of
        up to 16 partitions, for 5 seconds at most. None instead of an answer: the topic couldn't be read.
        """
        return self._admin().key_places(self._name)

    @property
    def adopted(self) -> bool:
        """Whether Kafka had the topic before us (`adopt_topic`): deleting it leaves it there. Read now."""
        return self._admin().record(self._name).adopted

    def publish(
        self,
        data: bytes,
        *,
        ordering_key: str | None = None,
        attributes: Mapping[str, str] | None = None,
        delay: float | timedelta | None = None,
        deliver_at: datetime | None = None,
        priority: int | None = None,
        durable: bool | None = None,
    ) -> Future[str]:
        """Queues a message; the future gives its id once it is on the in-sync replicas.

        `ordering_key`: messages of one key are delivered in the order of their publishing; None, the default, is
        unordered. `attributes`: names and texts beside the body, none by default; a name may not begin with `ps-`.
        `delay` (seconds or a timedelta) or `deliver_at` (a datetime with a time zone) keeps the message back until
        then; the default, like zero and a time that has passed, is now. The future resolves when the message is
        durably waiting, and its id stays the same. Delayed messages of a key come in the order of their due times,
        and need a running router (docs/delays.md). `priority` (0 up to one below the topic's number of priorities; the
        default is the middle one) is which waiting messages go first: the highest. `durable=False` publishes a message
        of the topic's transient class, whose future resolves when the leader has it; it may be lost. The first message
        of a priority and class makes their lane (docs/lanes.md).

        Wrong arguments are raised by the call itself, everything later by the future.
        """
        publisher = self._publishers.get(self._name) or self._publisher()
        if delay is not None or deliver_at is not None:
            return self._delayed().publish(
                publisher, data, ordering_key, attributes, delay, deliver_at, priority, durable
            )
        if priority is not None or durable is not None:
            return publisher.publish_in(data, ordering_key, attributes, priority, durable)
        return publisher.publish(data, ordering_key, attributes)

    def cancel(self, message_id: str, *, timeout: float = 10.0) -> bool:
        """Cancels a delayed message, by the id that its future gives; returns whether it was in time.

        True: the message won't be delivered. False: it was delivered, or will be, or its id isn't one of a delayed
        message. It takes as long as looking for the message among those that wait in its partition, and needs no
        router. Raises `DeadlineExceeded` if the answer couldn't be read within `timeout` seconds (10 by default): the
        request may still count.
        """
        return self._delayed().cancel(self._name, message_id, timeout)

    def publish_many(self, items: Iterable[bytes | PublishItem]) -> PublishFutures:
        """Queues many messages in their order: the cheapest way to publish many.

        An item is a body, or a dict with `publish`'s arguments: `{"data": b"...", "ordering_key": "k", "attributes":
        {...}, "delay": 600, "priority": 7, "durable": False}`. All are read and checked before the first is queued:
        `InvalidArgument` names the place and the field of a wrong one, and nothing is sent. What is known only later
        comes through the futures, which are in the order of the items, delayed or not: an item of a paused key fails by
        itself; from the first one that can't be queued at all (no room under `PublishFlow(on_limit="error")`, a closed
        `PubSub`) all fail. It waits while there is no room, as `publish` does.

        Example:
            ids = topic.publish_many({"data": line, "ordering_key": "log"} for line in lines).result(timeout=60)
        """
        publisher = self._publishers.get(self._name) or self._publisher()
        messages = read_items(items, self._wall)
        if messages.dues:
            return self._delayed().publish_many(publisher, messages)
        return publisher.publish_many(messages)

    def publish_json(self, obj: object, **options: Unpack[PublishOptions]) -> Future[str]:
        """Publishes `obj` as compact JSON in UTF-8; `message.json()` gives it back, `message.json(Order)` as `Order`.

        It takes what JSON knows, and what pydantic can serialise: models, dataclasses, datetimes, UUIDs, Decimals,
        Enums. The options are `publish`'s.
        """
        return self.publish(encode_json(obj), **options)

    def publish_record(self, obj: object, **options: Unpack[PublishOptions]) -> Future[str]:
        """Publishes `obj` by the topic's schema (docs/records.md); `message.record()` gives it back.

        `obj`: a pydantic model, a dataclass, a dict, or a Protobuf message. `SchemaError` names the path of a field
        that doesn't fit, and nothing is sent. The options are `publish`'s. The first one of a class asks for the
        schema, unless the topic was declared in this process with it.
        """
        return self.publish(self._writer().encode_into(obj, options), **options)

    def _encodes(self, obj: object) -> bool:
        """Whether `publish_record` encodes the value without asking for anything."""
        return self._records().ready_writer(self._name, obj) is not None

    def _writer(self) -> RecordWriter:
        return self._records().writer(self._name, lambda: self.options.record_schema)

    def tail(self, max_messages: int = 10, *, follow: bool = False) -> Iterator[Message]:
        """Yields the newest messages, of all lanes, the oldest of them first; no subscription notices.

        `max_messages`: how many at most, 10 by default. With `follow` (default False) the iterator goes on with what is
        published from now on, and never ends by itself. The messages have no lease: they can't be acked.

        Messages of a key come in their order. Delayed messages come when they are delivered.
        """
        return tail_of(self._admin(), self._name).read(max_messages, follow=follow)

    @property
    def lanes(self) -> list[str]:
        """The Kafka topics of the lanes that were used, the topic's own first; read from the catalog now."""
        return [self._name, *(each.name for each in self._admin().record(self._name).lanes if each.topic_id)]

    @property
    def given_up(self) -> int:
        """How many transient messages of this process failed, most of them because no broker answered in time."""
        return self._publisher().given_up

    def _would_block(
        self,
        data: object,
        priority: int | None = None,
        durable: bool | None = None,
        *,
        delayed: bool = False,
    ) -> bool:
        """Whether `publish` would have to wait now: to look topics up, or because too much is on its way.

        `priority` and `durable` are those of the message. `delayed` (default False): whether it has a `delay` or
        `deliver_at`.
        """
        size = len(data) if isinstance(data, bytes) else 0
        return self._publisher().would_block(size, priority, durable) or (
            delayed and self._delayed().would_block(size)
        )

    def resume(self, ordering_key: str) -> None:
        """Allows publishing with a key again that a failed publish has paused."""
        publisher = self._publisher()
        publisher.resume(ordering_key)
        for home in publisher.names:
            self._delayed().resume(home, ordering_key)

    def flush(self, timeout: float | None = None) -> None:
        """Waits until every message published to this topic so far is stored or has failed; delayed ones, too.

        A message to a causal topic is waited for until it has its place in the order, or has failed. Raises
        `DeadlineExceeded` after `timeout` seconds; None, the default, waits without a limit.
        """
        until = None if timeout is None else time.monotonic() + timeout

        def left() -> float | None:
            return None if until is None else max(0.0, until - time.monotonic())

        self._publisher().flush(timeout)
        self._delayed().flush(self._name, left())
        self._multicast().flush(self._name, left())

    def configure(
        self,
        *,
        batching: Batching | None = None,
        flow: PublishFlow | None = None,
        message_ordering: bool | None = None,
    ) -> None:
        """Changes how this process publishes to the topic, and the topic's stored `message_ordering`.

        `batching`: when a batch is sent. `flow`: how much may wait, and what `publish` does beyond that.
        `message_ordering`: whether the topic takes ordering keys. Options that aren't given stay as they are.
        """
        if message_ordering is not None:
            self._admin().update(self._name, {"message_ordering": message_ordering})
        if batching is not None or flow is not None or message_ordering is not None:
            self._publisher().configure(batching=batching, flow=flow, message_ordering=message_ordering)

    def delete(self) -> bool:
        """Deletes the topic and its messages; its subscriptions become detached.

        True: Kafka keeps the topic and its messages, since it was adopted.
        """
        return self._delete()

    def __repr__(self) -> str:
        return f"<Topic {self._name!r}>"


def names_of(topics: Iterable[str | Topic]) -> Iterable[str]:
    """Returns names in place of handles; a wrong argument is found later."""
    if isinstance(topics, (str, bytes)):
        return topics
    return [each.name if isinstance(each, Topic) else each for each in topics]


# The class of new handles.
_class: type[Topic] = Topic


def use(kind: type[Topic]) -> None:
    """Makes new handles of this class, which `observe.tracing` has for spans."""
    global _class
    _class = kind


def new_topic(name: str, **parts: Unpack[TopicParts]) -> Topic:
    """Returns a handle."""
    return _class(name, **parts)
