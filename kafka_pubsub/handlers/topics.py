"""A topic whose values have a type: what it publishes is encoded, and its key is taken from the value."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from os import PathLike
from typing import TYPE_CHECKING, Generic, TypeVar, Unpack, cast

from kafka_pubsub.config import TopicSchema
from kafka_pubsub.errors import InvalidArgument
from kafka_pubsub.options import PublishOptions
from kafka_pubsub.payloads import encode_body

if TYPE_CHECKING:
    from kafka_pubsub.app import PubSub
    from kafka_pubsub.records.codec import Format

__all__ = ["AppTopic"]

T = TypeVar("T")


class AppTopic(Generic[T]):
    """A topic of an app; made by `App.topic`.

    Example:
        orders = app.topic("orders", Order, key=lambda order: order.user_id)
        orders.publish(Order(user_id="ada", total=12)).result(timeout=10)
    """

    def __init__(
        self,
        name: str,
        kind: type[T] | None,
        key: Callable[[T], str | None] | None,
        pubsub: Callable[[], PubSub],
        schema: str | PathLike[str] | TopicSchema | None = None,
    ) -> None:
        self._name = name
        self._kind = kind
        self._key = key
        self._pubsub = pubsub
        self._schema = schema
        # The client with which the schema was declared; None: with none.
        self._declared: PubSub | None = None

    @property
    def name(self) -> str:
        """The topic's name."""
        return self._name

    def takes(self, value: object) -> bool:
        """Returns whether the value is of the topic's type."""
        return self._kind is None or isinstance(value, self._kind)

    def key_of(self, value: T) -> str | None:
        """Returns the ordering key of a value, by the app's `key`; None: there is none."""
        return None if self._key is None else self._key(value)

    @property
    def has_schema(self) -> bool:
        """Whether a schema was declared for it."""
        return self._schema is not None

    def declare(self) -> None:
        """Declares the topic's schema, if it has one, and asks for the schema's number."""
        pubsub = self._pubsub()
        if self._schema is None or self._declared is pubsub:
            return
        given: object = self._schema
        format_: Format | None = None
        if self._kind is not None and given in ("avro", "json", "protobuf"):
            given, format_ = self._kind, cast("Format", given)
        elif self._kind is not None and isinstance(given, TopicSchema) and given.file is None:
            given = given.model_copy(update={"kind": given.kind or self._kind})
        pubsub._use_schema(self._name, given, format_)
        self._declared = pubsub

    def publish(self, value: T, **options: Unpack[PublishOptions]) -> Future[str]:
        """Queues a value; the future gives its message's id once it is on the in-sync replicas.

        Bytes go as they are, text in UTF-8, anything else by the topic's schema, or without one as JSON. The options
        are those of `Topic.publish`; `ordering_key` is by default the key that `App.topic(key=)` takes from the value.
        In a coroutine await `asyncio.wrap_future(orders.publish(order))`.
        """
        if self._kind is not None and not self.takes(value):
            raise InvalidArgument(
                f"topic {self._name!r} takes {self._kind.__name__}, not {type(value).__name__}: publish "
                f"{self._kind.__name__}(...)"
            )
        if options.get("ordering_key") is None:
            options["ordering_key"] = self.key_of(value)
        topic = self._pubsub().topic(self._name)
        if self._schema is None or isinstance(value, (bytes, str)):
            return topic.publish(encode_body(value), **options)
        self.declare()
        return topic.publish_record(value, **options)

    def __repr__(self) -> str:
        return f"<AppTopic {self._name!r}>"
