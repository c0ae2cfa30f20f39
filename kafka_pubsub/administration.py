"""Makes the managers of topics and of subscriptions, with the features that keep Kafka topics beside them."""

from __future__ import annotations

import time
from collections.abc import Callable

from kafka_pubsub.lanes.admin import SubscriptionLanes
from kafka_pubsub.lanes.topics import LaneTopics
from kafka_pubsub.log.ports import Backend
from kafka_pubsub.multicast.inbox_topics import InboxTopics
from kafka_pubsub.subscribe.admin.subscriptions import SubscriptionAdmin
from kafka_pubsub.topics.topics import TopicAdmin

__all__ = ["manage_subscriptions", "manage_topics"]


def manage_topics(
    backend: Backend,
    *,
    may_create: bool,
    on_changed: Callable[[str], None] = lambda name: None,
    now: Callable[[], float] = time.time,
    sleep: Callable[[float], None] = time.sleep,
) -> TopicAdmin:
    """Returns what manages topics; `may_create`: whether it makes Kafka topics."""
    lanes = LaneTopics(backend.admin, may_create=may_create)
    return TopicAdmin(
        backend,
        lanes,
        InboxTopics(backend),
        may_create=may_create,
        on_changed=on_changed,
        now=now,
        sleep=sleep,
    )


def manage_subscriptions(
    backend: Backend,
    topics: TopicAdmin,
    *,
    may_create: bool,
    now: Callable[[], float] = time.time,
    sleep: Callable[[float], None] = time.sleep,
) -> SubscriptionAdmin:
    """Returns what manages subscriptions; `may_create`: whether it makes Kafka topics."""
    lanes = SubscriptionLanes(backend, may_create=may_create)
    return SubscriptionAdmin(backend, topics, lanes, may_create=may_create, now=now, sleep=sleep)
