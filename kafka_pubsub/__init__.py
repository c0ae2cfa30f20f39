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
    from kafka_pubsub.config import (
        Batching,
        DeadLetterPolicy,
        FlowControl,
        PublishFlow,
        RetryPolicy,
        Settings,
        SubscriptionOptions,
        TopicOptions,
        TopicSchema,
    )
    from kafka_pubsub.dead_letters.model import DeadLetterMessage, DeadLetterProgress, DeadLetterResult
    from kafka_pubsub.delays.dead_letters import DelayDeadLetter
    from kafka_pubsub.delays.service import DelayRouter
    from kafka_pubsub.delays.waiting import WaitingMessage
    from kafka_pubsub.errors import (
        AckError,
        AlreadyExists,
        BadRecord,
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
        RegistryUnavailable,
        ResourceExhausted,
        SchemaError,
        StaleAck,
        UnknownAck,
    )
    from kafka_pubsub.handlers.app import App
    from kafka_pubsub.handlers.outcomes import DeadLetter, Drop, Retry
    from kafka_pubsub.looks.message import PeekedMessage
    from kafka_pubsub.model import Message
    from kafka_pubsub.multicast.dead_letters import MulticastDeadLetter
    from kafka_pubsub.multicast.future import Sent
    from kafka_pubsub.multicast.service import Sequencer
    from kafka_pubsub.multicast.status import CausalBlock, CausalStatus
    from kafka_pubsub.publish.many import PublishFutures, PublishItem
    from kafka_pubsub.repartition.drain import UnreadableRecord
    from kafka_pubsub.repartition.repartition import RepartitionProgress
    from kafka_pubsub.subscribe.retry_topic.key_states import KeyState
    from kafka_pubsub.subscribe.retry_topic.lost_tails import LostTail
    from kafka_pubsub.subscribe.stream.status import SubscriptionState
    from kafka_pubsub.subscribe.stream.stream import Stream
    from kafka_pubsub.subscription import Subscription
    from kafka_pubsub.topic import Topic

__all__ = [
    "AckError",
    "AlreadyExists",
    "App",
    "BadRecord",
    "Batching",
    "BrokerUnavailable",
    "CausalBlock",
    "CausalStatus",
    "DeadLetter",
    "DeadLetterMessage",
    "DeadLetterPolicy",
    "DeadLetterProgress",
    "DeadLetterResult",
    "DeadlineExceeded",
    "DelayDeadLetter",
    "DelayRouter",
    "Drop",
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
    "RegistryUnavailable",
    "RepartitionProgress",
    "ResourceExhausted",
    "Retry",
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
    "TopicSchema",
    "UnknownAck",
    "UnreadableRecord",
    "WaitingMessage",
]

#: The module of each public name that isn't an error.
_HOMES = {
    "App": "handlers.app",
    "Batching": "config",
    "CausalBlock": "multicast.status",
    "CausalStatus": "multicast.status",
    "DeadLetter": "handlers.outcomes",
    "DeadLetterMessage": "dead_letters.model",
    "DeadLetterPolicy": "config",
    "DeadLetterProgress": "dead_letters.model",
    "DeadLetterResult": "dead_letters.model",
    "DelayDeadLetter": "delays.dead_letters",
    "DelayRouter": "delays.service",
    "Drop": "handlers.outcomes",
    "Retry": "handlers.outcomes",
    "Sent": "multicast.future",
    "Sequencer": "multicast.service",
    "FlowControl": "config",
    "KeyState": "subscribe.retry_topic.key_states",
    "LostTail": "subscribe.retry_topic.lost_tails",
    "Message": "model",
    "MulticastDeadLetter": "multicast.dead_letters",
    "PeekedMessage": "looks.message",
    "PubSub": "app",
    "PublishFlow": "config",
    "PublishFutures": "publish.many",
    "PublishItem": "publish.many",
    "RepartitionProgress": "repartition.repartition",
    "RetryPolicy": "config",
    "Settings": "config",
    "Stream": "subscribe.stream.stream",
    "Subscription": "subscription",
    "SubscriptionOptions": "config",
    "SubscriptionState": "subscribe.stream.status",
    "Topic": "topic",
    "TopicOptions": "config",
    "TopicSchema": "config",
    "UnreadableRecord": "repartition.drain",
    "WaitingMessage": "delays.waiting",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(importlib.import_module(f"{__name__}.{_HOMES.get(name, 'errors')}"), name)
    globals()[name] = value  # the next lookup doesn't call this function
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
