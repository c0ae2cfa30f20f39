"""Pub/Sub semantics on Apache Kafka: topics, subscriptions, acks, deadlines, and order per key.

>>> from kafka_pubsub import PubSub
>>> with PubSub("localhost:9092") as ps:
...     ps.topic("orders").publish(b"...", ordering_key="user-123").result(timeout=10)

Rule: importing this package loads none of its modules; a name is loaded at its first use. So a program that imports
only `kafka_pubsub.model` (a Spark executor) needs neither librdkafka nor pydantic.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafka_pubsub.app import PubSub
    from kafka_pubsub.client.admin.drain import UnreadableRecord
    from kafka_pubsub.client.admin.repartition import RepartitionProgress
    from kafka_pubsub.client.assignment.lost_tails import LostTail
    from kafka_pubsub.client.dead_letters.key_states import KeyState
    from kafka_pubsub.client.dead_letters.model import DeadLetter, DeadLetterProgress, DeadLetterResult
    from kafka_pubsub.client.delays.dead_letters import DelayDeadLetter
    from kafka_pubsub.client.delays.waiting import WaitingMessage
    from kafka_pubsub.client.looks.message import PeekedMessage
    from kafka_pubsub.client.multicast.dead_letters import MulticastDeadLetter
    from kafka_pubsub.client.multicast.future import Sent
    from kafka_pubsub.client.multicast.status import CausalBlock, CausalStatus
    from kafka_pubsub.client.publish.many import PublishFutures, PublishItem
    from kafka_pubsub.client.publish.topic import Topic
    from kafka_pubsub.client.subscribe.status import SubscriptionState
    from kafka_pubsub.client.subscribe.stream import Stream
    from kafka_pubsub.client.subscribe.subscription import Subscription
    from kafka_pubsub.config import (
        Batching,
        DeadLetterPolicy,
        FlowControl,
        PublishFlow,
        RetryPolicy,
        Settings,
        SubscriptionOptions,
        TopicOptions,
    )
    from kafka_pubsub.errors import (
        AckError,
        AlreadyExists,
        BrokerUnavailable,
        DeadlineExceeded,
        FailedPrecondition,
        InvalidArgument,
        InvariantViolated,
        NotFound,
        OrderingKeyPaused,
        PermissionDenied,
        PublishError,
        PubSubError,
        ResourceExhausted,
        SchemaError,
        StaleAck,
        UnknownAck,
    )
    from kafka_pubsub.model import Message
    from kafka_pubsub.services.delays import DelayRouter
    from kafka_pubsub.services.sequencer import Sequencer

__all__ = [
    "AckError",
    "AlreadyExists",
    "Batching",
    "BrokerUnavailable",
    "CausalBlock",
    "CausalStatus",
    "DeadLetter",
    "DeadLetterPolicy",
    "DeadLetterProgress",
    "DeadLetterResult",
    "DeadlineExceeded",
    "DelayDeadLetter",
    "DelayRouter",
    "FailedPrecondition",
    "FlowControl",
    "InvalidArgument",
    "InvariantViolated",
    "KeyState",
    "LostTail",
    "Message",
    "MulticastDeadLetter",
    "NotFound",
    "OrderingKeyPaused",
    "PeekedMessage",
    "PermissionDenied",
    "PubSub",
    "PubSubError",
    "PublishError",
    "PublishFlow",
    "PublishFutures",
    "PublishItem",
    "RepartitionProgress",
    "ResourceExhausted",
    "RetryPolicy",
    "SchemaError",
    "Sent",
    "Sequencer",
    "Settings",
    "StaleAck",
    "Stream",
    "Subscription",
    "SubscriptionOptions",
    "SubscriptionState",
    "Topic",
    "TopicOptions",
    "UnknownAck",
    "UnreadableRecord",
    "WaitingMessage",
]

#: The module of each public name that isn't an error.
_HOMES = {
    "Batching": "config",
    "CausalBlock": "client.multicast.status",
    "CausalStatus": "client.multicast.status",
    "DeadLetter": "client.dead_letters.model",
    "DeadLetterPolicy": "config",
    "DeadLetterProgress": "client.dead_letters.model",
    "DeadLetterResult": "client.dead_letters.model",
    "DelayDeadLetter": "client.delays.dead_letters",
    "DelayRouter": "services.delays",
    "Sent": "client.multicast.future",
    "Sequencer": "services.sequencer",
    "FlowControl": "config",
    "KeyState": "client.dead_letters.key_states",
    "LostTail": "client.assignment.lost_tails",
    "Message": "model",
    "MulticastDeadLetter": "client.multicast.dead_letters",
    "PeekedMessage": "client.looks.message",
    "PubSub": "app",
    "PublishFlow": "config",
    "PublishFutures": "client.publish.many",
    "PublishItem": "client.publish.many",
    "RepartitionProgress": "client.admin.repartition",
    "RetryPolicy": "config",
    "Settings": "config",
    "Stream": "client.subscribe.stream",
    "Subscription": "client.subscribe.subscription",
    "SubscriptionOptions": "config",
    "SubscriptionState": "client.subscribe.status",
    "Topic": "client.publish.topic",
    "TopicOptions": "config",
    "UnreadableRecord": "client.admin.drain",
    "WaitingMessage": "client.delays.waiting",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(importlib.import_module(f"{__name__}.{_HOMES.get(name, 'errors')}"), name)
    globals()[name] = value  # the next lookup doesn't call this function
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
