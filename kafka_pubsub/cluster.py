"""One cluster in use: its backend, made at the first use, and the publishers and subscribers that share it.

Rules
1. The cluster connects at its first use. If the process forks after that, the child can't use the cluster: threads
   and connections stay in the parent, so every call in the child fails with an error that says so.
2. Each topic has one publisher and each subscription one subscriber, made without I/O. A topic that is created again
   under the same name gets a new publisher; a subscriber looks up its subscription whenever it begins to receive.
3. `publisher` is called for every message, so it costs one look-up in a dict and no lock.
4. The parts close in this order: watch, subscribers (all streams at the same time), publishers (flushed), services of
   its own, writers, backend.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple

from kafka_pubsub.administration import manage_subscriptions, manage_topics
from kafka_pubsub.config import TopicSchema
from kafka_pubsub.dead_letters.operations import DeadLetterOperations, open_dead_letters
from kafka_pubsub.delays.dead_letters import DelayDeadLetters
from kafka_pubsub.delays.layout import PARTITIONS
from kafka_pubsub.delays.plan import Topology
from kafka_pubsub.delays.publisher import DelayedPublisher, router_watch
from kafka_pubsub.delays.topics import DelayTopics
from kafka_pubsub.errors import FailedPrecondition, InvalidArgument
from kafka_pubsub.history.protocol import Histories
from kafka_pubsub.history.recorded_publisher import RecordedPublisher
from kafka_pubsub.lane_names import Lane
from kafka_pubsub.lanes.admin import LaneAdmin
from kafka_pubsub.lanes.home_publisher import HomePublisher, LaneTarget, Ordered
from kafka_pubsub.lanes.topics import check_lane
from kafka_pubsub.log.clocks import wall_time
from kafka_pubsub.log.joining import closing
from kafka_pubsub.log.ports import Admin, Backend, MovableClock
from kafka_pubsub.multicast.dead_letters import MulticastDeadLetters
from kafka_pubsub.multicast.multicast import Multicast
from kafka_pubsub.multicast.publisher import sequencer_watch
from kafka_pubsub.publish.publisher import TopicPublisher
from kafka_pubsub.publish.topic_settings import PublishTarget
from kafka_pubsub.publish.writer_pool import WriterPool
from kafka_pubsub.records.codec import Format
from kafka_pubsub.records.records import Declared, Records
from kafka_pubsub.repartition.repartition import Repartitioner
from kafka_pubsub.subscribe.admin.subscriptions import SubscriptionAdmin
from kafka_pubsub.subscribe.deletion_watch import Watch, reason_to_end
from kafka_pubsub.subscriber import Subscriber
from kafka_pubsub.topics.catalog_changes import check_layout
from kafka_pubsub.topics.topics import TopicAdmin

__all__ = ["OPEN", "Cluster", "new_publisher"]

#: The clusters that this process uses, for `observe`, which asks them at a scrape.
OPEN: weakref.WeakSet[Cluster] = weakref.WeakSet()

#: Seconds that `close` waits for published messages; the second one holds if no broker has ever answered, as with a
#: wrong address: the first message has waited for an answer already.
_CLOSE_S, _UNANSWERED_S = 30.0, 1.0


class _Connection(NamedTuple):
    """All parts that the first use makes."""

    pid: int
    backend: Backend
    topics: TopicAdmin
    lanes: LaneAdmin
    subscriptions: SubscriptionAdmin
    repartitioner: Repartitioner
    dead_letters: DeadLetterOperations
    writers: WriterPool
    watch: Watch
    delay_topics: DelayTopics
    delayed: DelayedPublisher
    multicast: Multicast


class Cluster:
    """The connection to one cluster and everything else behind a `PubSub`; it connects at its first use."""

    def __init__(
        self,
        connect: Callable[[], Backend],
        *,
        may_create: bool,
        histories: Histories | None = None,
        clock: MovableClock | None = None,
        delay_partitions: int = PARTITIONS,
        records: Records | None = None,
    ) -> None:
        #: The records of this client's messages, and their schemas.
        self.records = records or Records(None)
        self._connect, self._delay_partitions = connect, delay_partitions
        #: The clock of the cluster if a test moves it, as `Backend.clock`; known before the first use.
        self.clock = clock
        self._histories = histories
        #: Whether the client makes topics and groups, and registers schemas.
        self.may_create = may_create
        # Guards the first connection, additions to the registries, and the close.
        self._lock = threading.RLock()
        self._connection: _Connection | None = None
        #: The publishers by topic: the topics to which this process has published and that it hasn't deleted.
        self.publishers: dict[str, HomePublisher] = {}
        # The subscribers by subscription: those from which this process has received.
        self._subscribers: dict[str, Subscriber] = {}
        self._closed = False
        #: Whether routers and sequencers run, for messages that need them.
        self.router_watch = router_watch()
        self.sequencer_watch = sequencer_watch()
        #: Called once, when the cluster is connected.
        self.on_connected: Callable[[], None] = lambda: None
        OPEN.add(self)

    @property
    def connected(self) -> bool:
        """Whether it was used and isn't closed, in this process."""
        connection = self._connection
        return connection is not None and connection.pid == os.getpid()

    @property
    def pulling(self) -> list[str]:
        """The subscriptions from which this process receives."""
        return [name for name, each in self._subscribers.copy().items() if each.pulling]

    @property
    def topics(self) -> TopicAdmin:
        """Returns the management of topics."""
        return self._connected().topics

    @property
    def subscriptions(self) -> SubscriptionAdmin:
        """Returns the management of subscriptions."""
        return self._connected().subscriptions

    @property
    def repartitioner(self) -> Repartitioner:
        """Returns the object that changes topics' numbers of partitions."""
        return self._connected().repartitioner

    @property
    def dead_letters(self) -> DeadLetterOperations:
        """Returns the operations on dead letters, parked messages and waiting messages."""
        return self._connected().dead_letters

    @property
    def backend(self) -> Backend:
        """The cluster's adapters, for what runs beside clients."""
        return self._connected().backend

    @property
    def delay_dead_letters(self) -> DelayDeadLetters:
        """Returns the operations on the delay routers' dead letters."""
        connection = self._connected()
        return DelayDeadLetters(connection.backend, connection.dead_letters.dead_letters)

    @property
    def multicast_dead_letters(self) -> MulticastDeadLetters:
        """Returns the operations on the sequencers' dead letters."""
        connection = self._connected()
        return MulticastDeadLetters(connection.backend, connection.dead_letters.dead_letters)

    @property
    def delay_topics(self) -> DelayTopics:
        """The topics of delayed delivery."""
        return self._connected().delay_topics

    @property
    def topology(self) -> Topology:
        """Returns the declared topics of delayed delivery, to be compared with the cluster's."""
        return Topology(self._connected().backend, may_create=self.may_create)

    @property
    def delayed(self) -> DelayedPublisher:
        """Publishes with a delay, to all topics."""
        return self._connected().delayed

    @property
    def multicast(self) -> Multicast:
        """Publishes to causal topics."""
        return self._connected().multicast

    def declare_schema(
        self,
        topic: str,
        given: object,
        format_: Format | None = None,
        before: Callable[[TopicSchema], object] = lambda schema: None,
    ) -> Declared:
        """Returns a topic's schema as it is declared; a client that may create registers it (`Records.declare`)."""
        register = self.may_create
        return self.records.declare(topic, given, format_=format_, register=register, before=before)

    def wall_time(self) -> float:
        """Returns the seconds since the epoch, by the clock of the cluster."""
        return wall_time(self.clock)

    def publisher(self, topic: str) -> HomePublisher:
        """Returns the topic's publisher, which looks up the topic at its first message."""
        return self.publishers.get(topic) or self._new_publisher(topic)

    def subscriber(self, subscription: str) -> Subscriber:
        """Returns the subscription's subscriber, which looks up the subscription whenever it begins to receive."""
        connection = self._connected()
        with self._lock:
            self._check_open()
            if subscription not in self._subscribers:
                self._subscribers[subscription] = Subscriber(
                    connection.backend,
                    lambda: connection.subscriptions.usable(subscription),
                    self._histories,
                )
                connection.watch.start()
            return self._subscribers[subscription]

    def delete_topic(self, name: str, notify: Iterable[str] = ()) -> bool:
        """Deletes a topic, after all messages that this process published to it are stored or have failed.

        Returns True if Kafka keeps the topic, because it was adopted. A causal topic's deletion is ordered first.
        """
        ordered = True
        if self.topics.is_causal(name):
            ordered = self.multicast.delete(name, notify)
        elif list(notify):
            raise InvalidArgument(
                f"notify: topic {name!r} isn't causal, so its deletion has no place in an order"
            )
        with self._lock:
            publisher = self.publishers.pop(name, None)
        if publisher is not None:
            publisher.close()
        kept = self.topics.delete(name)
        if not ordered:
            self.topics.delete(name)  # no inbox is left that could refuse messages
        return kept

    def delete_subscription(self, name: str) -> None:
        """Deletes a subscription; its streams in this process end first."""

        def end_streams() -> None:
            subscriber = self._subscribers.get(name)
            if subscriber is not None:
                subscriber.end(reason_to_end(name, None))

        self.subscriptions.delete(name, on_marked=end_streams)

    def close(self) -> None:
        """Ends everything; does nothing the second time, or in a forked child, which owns none of the parts."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            connection, self._connection = self._connection, None
            subscribers = list(self._subscribers.values())
            publishers: list[TopicPublisher] = list(self.publishers.values())
            if connection is not None:
                publishers.append(connection.delayed.publisher)
            self._subscribers.clear()
            self.publishers.clear()
        if connection is None or connection.pid != os.getpid():
            self.records.close()
            return
        with closing(threading.current_thread()), contextlib.ExitStack() as steps:
            # The stack runs these in reverse, and runs each even if another raises.
            steps.callback(connection.backend.close)
            steps.callback(self.records.close)
            steps.callback(connection.writers.close)
            steps.callback(self.router_watch.close)
            steps.callback(self.sequencer_watch.close)
            steps.callback(_close_all, publishers)
            steps.callback(connection.multicast.close)
            for subscriber in subscribers:
                steps.callback(subscriber.close)
            steps.callback(_begin_closing, subscribers)
            steps.callback(connection.watch.stop)

    def _connected(self) -> _Connection:
        connection = self._connection
        if connection is None:
            connection = self._first_use()
        if connection.pid != os.getpid():
            raise FailedPrecondition(
                "this PubSub was used before the process forked; connections don't survive a fork: make the "
                "PubSub, or use it for the first time, in the child"
            )
        return connection

    def _first_use(self) -> _Connection:
        with self._lock:
            self._check_open()
            if self._connection is None:
                backend = self._connect()
                backend.records = self.records
                topics = manage_topics(backend, may_create=self.may_create, on_changed=self._topic_changed)
                lanes = LaneAdmin(backend, topics, may_create=self.may_create)
                subscriptions = manage_subscriptions(
                    backend, topics, may_create=self.may_create, now=self.wall_time
                )
                repartitioner = Repartitioner(backend, topics, may_create=self.may_create)
                dead_letters = open_dead_letters(backend, subscriptions, may_create=self.may_create)
                writers = WriterPool(backend.writer)
                watch = Watch(backend.catalog.subscriptions, self._subscribers.copy)
                delay_topics = DelayTopics(
                    backend.admin,
                    backend.catalog,
                    may_create=self.may_create,
                    partitions=self._delay_partitions,
                )
                delayed = DelayedPublisher(delay_topics, writers, backend, self.router_watch, self.wall_time)
                multicast = Multicast(backend, topics.found, self.sequencer_watch)
                self._connection = _Connection(
                    os.getpid(),
                    backend,
                    topics,
                    lanes,
                    subscriptions,
                    repartitioner,
                    dead_letters,
                    writers,
                    watch,
                    delay_topics,
                    delayed,
                    multicast,
                )
                self.on_connected()
            return self._connection

    def _topic_changed(self, name: str) -> None:
        if self._connection is not None:
            self._connection.delayed.look_again()
        self.records.forget(name)
        publisher = self.publishers.get(name)
        if publisher is not None:
            publisher.look_again()

    def _check_open(self) -> None:
        if self._closed:
            raise FailedPrecondition("this PubSub is closed: make a new one")

    def _new_publisher(self, topic: str) -> HomePublisher:
        connection = self._connected()
        with self._lock:
            self._check_open()
            if topic not in self.publishers:
                self.publishers[topic] = new_publisher(
                    topic,
                    lambda: _target(connection.topics, topic),
                    connection.writers,
                    lambda lane: _lane_target(connection.backend.admin, connection.lanes, topic, lane),
                    partial(connection.multicast.publish_to, topic),
                    self._histories,
                )
            return self.publishers[topic]


def _begin_closing(subscribers: Sequence[Subscriber]) -> None:
    """Begins to close all streams, so that they share the time that a close takes."""
    for subscriber in subscribers:
        subscriber.begin_closing()


def _close_all(publishers: Sequence[TopicPublisher]) -> None:
    """Closes the publishers within one time limit: while it waits for one, the messages of the others are sent too."""
    answered = any(each.answered for each in publishers)
    end = time.monotonic() + (_CLOSE_S if answered else _UNANSWERED_S)

    def close(publisher: TopicPublisher) -> None:
        # Each close gets at least a moment; then it logs which messages are left.
        publisher.close(max(end - time.monotonic(), 0.05))

    with contextlib.ExitStack() as steps:
        for publisher in publishers:
            steps.callback(close, publisher)


def _target(topics: TopicAdmin, name: str) -> PublishTarget:
    record, info = topics.found(name)
    no_keys = None
    try:
        check_layout(record, info)
    except FailedPrecondition as error:
        no_keys = error
    return PublishTarget(
        record.options.message_ordering,
        info.max_message_bytes,
        no_keys,
        info.partitions,
        record.lane_rules,
        info.topic_id,
        record.options.causal,
    )


def _lane_target(admin: Admin, lanes: LaneAdmin, topic: str, lane: Lane) -> PublishTarget:
    """Returns the settings of a lane's Kafka topic, which is made if the lane is new; raises why it can't be used."""
    record = lanes.ensure(topic, lane)
    known = record.lane(record.lane_rules.name(lane))
    assert known is not None
    info = check_lane(admin, record, known)
    return PublishTarget(
        record.options.message_ordering,
        info.max_message_bytes,
        None,
        info.partitions,
        record.lane_rules,
        info.topic_id,
    )


class _Recorded(RecordedPublisher, HomePublisher):
    """Publishes to one topic and its lanes, and records."""


def new_publisher(
    topic: str,
    target: Callable[[], PublishTarget],
    writers: WriterPool,
    lane_target: LaneTarget,
    ordered: Ordered,
    histories: Histories | None,
) -> HomePublisher:
    """Returns the publisher of a topic, which records if there are histories."""
    if histories is None:
        return HomePublisher(topic, target, writers, lane_target, ordered)
    return _Recorded(topic, target, writers, lane_target, ordered).record(histories.of_publisher(topic))
