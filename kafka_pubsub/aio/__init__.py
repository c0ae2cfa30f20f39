"""The asyncio version of `kafka_pubsub`: the same names and arguments, for coroutines.

>>> from kafka_pubsub.aio import PubSub
>>> async with PubSub("localhost:9092") as ps:
...     message_id = await ps.topic("orders").publish(b"...", ordering_key="user-123")

Rules
1. Nothing here blocks the event loop: a call that waits for the cluster waits on a thread.
2. `publish` returns a future at once, so that many messages can be on their way; calls that need the cluster are
   coroutines.
3. A wait for an event that may never come (a stream's end, a flush) holds none of the loop's threads, so that a loop
   can always end.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafka_pubsub.aio.pubsub import PubSub
    from kafka_pubsub.aio.stream import Stream
    from kafka_pubsub.aio.subscription import Subscription
    from kafka_pubsub.aio.topic import Topic
    from kafka_pubsub.model import Message

__all__ = ["Message", "PubSub", "Stream", "Subscription", "Topic"]

_HOMES = {
    "Message": "kafka_pubsub.model",
    "PubSub": "kafka_pubsub.aio.pubsub",
    "Stream": "kafka_pubsub.aio.stream",
    "Subscription": "kafka_pubsub.aio.subscription",
    "Topic": "kafka_pubsub.aio.topic",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value  # the next lookup doesn't call this function
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
