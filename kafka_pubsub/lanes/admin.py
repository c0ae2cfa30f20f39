"""Adds a lane to a topic when it is first used, with a retry topic for each subscription.

Rules
1. `ensure` writes the topic's record with the lane, without an id; makes the lane's Kafka topic; gives each
   subscription its part of the lane; then writes the record with the id. Messages are published to a lane only when its
   id is in the record, or in an outage, when that isn't known: so where each subscription begins is written before the
   topic is made. After a crash, or beside another process, the next call does the missing steps.
2. A subscription that is being made reads the topic's lanes after its own record is written, and `ensure` reads the
   subscriptions after the lane is written: so one of them sees the other, and each subscription has its part of each
   lane.
3. A subscription that is older than the lane begins at the lane's beginning. If the lane's Kafka topic held records
   before, they aren't ours: it begins at their end.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from functools import partial

from kafka_pubsub.config import LaneTopic, SubscriptionLane, SubscriptionRecord, TopicRecord
from kafka_pubsub.errors import (
    BrokerUnavailable,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    PermissionDenied,
    PubSubError,
    TooFewBrokers,
)
from kafka_pubsub.lane_names import Lane
from kafka_pubsub.lanes.topics import LaneTopics, check_lane
from kafka_pubsub.log.ports import Backend
from kafka_pubsub.model import TopicInfo
from kafka_pubsub.subscribe.retry_topic.retry_topics import RetryTopics
from kafka_pubsub.topics.catalog_changes import conflicts, settle
from kafka_pubsub.topics.topics import TopicAdmin

__all__ = ["LaneAdmin", "SubscriptionLanes"]

#: Attempts of a change. Publishers of many processes may begin with many lanes at once, and each attempt that fails is
#: one that another process has won: a topic changes at most twice for each of its lanes.
_ATTEMPTS = 100

#: Errors with which a cluster refuses to make a topic: nothing was changed.
_REFUSALS = (FailedPrecondition, InvalidArgument, PermissionDenied)


class LaneAdmin:
    """Adds lanes to the topics of one cluster."""

    def __init__(self, backend: Backend, topics: TopicAdmin, *, may_create: bool) -> None:
        self._topics = topics
        self._lanes = LaneTopics(backend.admin, may_create=may_create)
        self._subscriptions = SubscriptionLanes(backend, may_create=may_create)

    def ensure(self, topic: str, lane: Lane) -> TopicRecord:
        """Makes a lane if it isn't there; returns the topic's record, which names it."""
        return settle(lambda: self._ensure(topic, lane), _ATTEMPTS)

    def _ensure(self, topic: str, lane: Lane) -> TopicRecord:
        record, home = self._topics.current(topic)
        rules = record.lane_rules
        name = rules.name(rules.choose(lane.priority, lane.durable))
        known = record.lane(name)
        if name == topic or (known is not None and known.topic_id):
            return record
        if known is None:
            self._lanes.check_may_make(name, lane, home)
            known = LaneTopic(name=name, priority=lane.priority, durable=lane.durable)
            record = self._store(record, known)
        try:
            if self._lanes.find(name) is None:
                self._subscriptions.plan(record, home._replace(name=name))
            info = self._lanes.make(name, lane, home)
            self._subscriptions.add(record, known, info)
        except TooFewBrokers as error:
            # The topic has as many replicas, so brokers are away: publishers wait, as in any outage.
            raise BrokerUnavailable(error.message) from error
        except NotFound as error:
            # A topic was made just now, and a broker doesn't know it yet; or it was deleted, and is made again.
            raise BrokerUnavailable(f"{error.message}; it was just made") from error
        except _REFUSALS:
            # After any other error the topic may exist, so the lane stays, and the next call goes on.
            with contextlib.suppress(PubSubError):
                others = tuple(each for each in record.lanes if each.name != name)
                self._topics.replace(record.model_copy(update={"lanes": others}), record)
            raise
        return self._store(record, known.model_copy(update={"topic_id": info.topic_id}))

    def _store(self, record: TopicRecord, lane: LaneTopic) -> TopicRecord:
        others = [each for each in record.lanes if each.name != lane.name]
        lanes = tuple(sorted([*others, lane], key=lambda each: each.name))
        after = record.model_copy(update={"lanes": lanes})
        self._topics.replace(after, record)
        return after


class SubscriptionLanes:
    """Gives subscriptions their parts of lanes."""

    def __init__(self, backend: Backend, *, may_create: bool) -> None:
        self._backend = backend
        self._retry = RetryTopics(backend.admin, may_create=may_create)

    def add(self, topic: TopicRecord, lane: LaneTopic, info: TopicInfo) -> None:
        """Gives all subscriptions of a topic their part of a lane."""
        self._change_each(topic, lambda record: self._give(record, lane, info))

    def plan(self, topic: TopicRecord, lane: TopicInfo) -> None:
        """Notes that all subscriptions of a topic begin at the beginning of a lane that doesn't exist yet.

        In an outage messages may be stored there before each subscription was given its part.
        """
        self._change_each(topic, lambda record: self._plan(record, lane, {}))

    def check_lane(self, topic: TopicRecord, lane: LaneTopic) -> None:
        """Raises `FailedPrecondition` if a lane's Kafka topic isn't the one in the catalog."""
        check_lane(self._backend.admin, topic, lane)

    def check(self, subscription: str, topic: TopicRecord) -> None:
        """Raises an error if a new subscription couldn't be given its part of a lane; changes nothing."""
        for lane in topic.lanes:
            info = self._retry.find(lane.name)
            if info is not None:
                self._retry.plan(subscription, info)

    def begin(
        self, record: SubscriptionRecord, beginning: Callable[[str], dict[int, int]]
    ) -> dict[str, SubscriptionLane]:
        """Returns a new subscription's parts of lanes; `beginning` gives the positions in a lane's Kafka topic."""
        return {
            name: part.model_copy(update={"positions": beginning(name)})
            for name, part in record.lanes.items()
        }

    def join(self, record: SubscriptionRecord, topic: TopicRecord) -> SubscriptionRecord:
        """Gives a subscription that is being made its part of all lanes; returns its record as it is stored then."""
        for lane in topic.lanes:
            info = self._retry.find(lane.name)
            if info is not None:
                record = self._give(record, lane, info)
        return record

    def remove(self, record: SubscriptionRecord) -> None:
        """Deletes the retry topics of a subscription's lanes, if we made them."""
        for part in record.lanes.values():
            self._retry.remove(part.retry_topic)

    def _receiving(self, topic: TopicRecord) -> Sequence[SubscriptionRecord]:
        return [
            each
            for each in self._backend.catalog.subscriptions().values()
            if each.topic == topic.name
            and each.topic_id == topic.topic_id
            and not each.detached
            and each.state != "deleting"
        ]

    def _change_each(self, topic: TopicRecord, change: Callable[[SubscriptionRecord], object]) -> None:
        """Changes each subscription of a topic by its latest record, again after another client's change."""

        def attempt(name: str) -> None:
            record = next((each for each in self._receiving(topic) if each.name == name), None)
            if record is not None:
                change(record)

        for each in self._receiving(topic):
            settle(partial(attempt, each.name), _ATTEMPTS)

    def _plan(
        self, record: SubscriptionRecord, lane: TopicInfo, positions: dict[int, int]
    ) -> SubscriptionRecord:
        """Notes where a subscription begins in a lane, unless that is known; returns its record as stored."""
        if lane.name in record.lanes:
            return record
        # Written before the retry topic is made, so that it isn't taken for another program's after a crash.
        part = SubscriptionLane(retry_topic=self._retry.plan(record.name, lane), positions=positions)
        return self._store(record, lane.name, part)

    def _give(self, record: SubscriptionRecord, lane: LaneTopic, info: TopicInfo) -> SubscriptionRecord:
        part = record.lanes.get(lane.name)
        if part is not None and part.retry_topic.topic_id:
            return record
        if part is None:
            record = self._plan(record, info, self._begin(info.name))
            part = record.lanes[lane.name]
        made = part.model_copy(update={"retry_topic": self._retry.make(part.retry_topic, info)})
        return self._store(record, lane.name, made)

    def _begin(self, lane: str) -> dict[int, int]:
        """Returns the positions that aren't 0."""
        ends = self._backend.admin.last_stable_offsets(lane)
        return {partition: offset for partition, offset in ends.items() if offset}

    def _store(self, record: SubscriptionRecord, lane: str, part: SubscriptionLane) -> SubscriptionRecord:
        after = record.model_copy(update={"lanes": {**record.lanes, lane: part}})
        with conflicts():
            self._backend.catalog.put_subscription(after, record)
        return after
