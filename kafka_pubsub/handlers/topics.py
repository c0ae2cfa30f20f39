"""A topic whose values have a type: what it publishes is encoded, and its key is taken from the value."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Generic, TypeVar, Unpack

from kafka_pubsub.errors import InvalidArgument
from kafka_pubsub.options import PublishOptions
from kafka_pubsub.payloads import encode_body

if TYPE_CHECKING:
    from kafka_pubsub.app import PubSub

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
    ) -> None:
        self._name = name
        self._kind = kind
        self._key = key
        self._pubsub = pubsub

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

    def publish(self, value: T, **options: Unpack[PublishOptions]) -> Future[str]:
        """Queues a value; the future gives its message's id once it is on the in-sync replicas.

        Bytes go as they are, text in UTF-8, anything else as JSON. The options are those of `Topic.publish`;
        `ordering_key` is by default the key that `App.topic(key=)` takes from the value. In a coroutine await
        `asyncio.wrap_future(orders.publish(order))`.
        """
        if self._kind is not None and not self.takes(value):
            raise InvalidArgument(
                f"topic {self._name!r} takes {self._kind.__name__}, not {type(value).__name__}: publish "
                f"{self._kind.__name__}(...)"
            )
        if options.get("ordering_key") is None:
            options["ordering_key"] = self.key_of(value)
        return self._pubsub().topic(self._name).publish(encode_body(value), **options)

    def __repr__(self) -> str:
        return f"<AppTopic {self._name!r}>"
