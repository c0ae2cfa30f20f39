"""Publishing with a delay: the message is stored in the topic of ingest, and a router brings it home when it is due.

Theory. What a home topic would refuse is refused by the call, as for a message without a delay. Then the message is
published to the topic of ingest: its key is the home topic's name, a zero byte and the ordering key, so that all
messages of a key take the same way, and its first header says where it goes and when. Its id is the place where it came
in, which stays the same: at home the header `ps-id` says it.

Rules
1. The future resolves when the message is durably waiting. A delay that has passed sends it straight home.
2. After a failed message its key is paused for delayed messages of the home topic, as it is without a delay.
3. The topics are made by the first message, if this process may make topics.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future
from datetime import datetime, timedelta
from itertools import groupby

from kafka_pubsub.config import Batching
from kafka_pubsub.counters import PARTS
from kafka_pubsub.delays.cancel import cancel_delayed, parse_id
from kafka_pubsub.delays.homes import Homes
from kafka_pubsub.delays.layout import INGEST, MOST_TIERS, longest
from kafka_pubsub.delays.records import DELAY_HEADER, ID_HEADER, DelayRequest, encode_request
from kafka_pubsub.delays.topics import DelayTopics
from kafka_pubsub.delays.waiting import WaitingMessage, waiting_messages
from kafka_pubsub.errors import (
    BrokerUnavailable,
    DeadlineExceeded,
    InvalidArgument,
    OrderingKeyPaused,
    PubSubError,
)
from kafka_pubsub.log.ports import Backend
from kafka_pubsub.model import Header
from kafka_pubsub.publish.checks import encode_attributes, encode_key, headers_size, refuse_data
from kafka_pubsub.publish.due import Due, parse_due
from kafka_pubsub.publish.future import PublishFuture
from kafka_pubsub.publish.home import Home
from kafka_pubsub.publish.many import Messages, PublishFutures, at_item
from kafka_pubsub.publish.publisher import TURN_MASK, TopicPublisher
from kafka_pubsub.publish.service_watch import ServiceWatch
from kafka_pubsub.publish.topic_settings import PublishTarget, fresh
from kafka_pubsub.publish.writer_pool import WriterPool

__all__ = ["DelayedPublisher", "check_longest", "router_watch"]

#: Messages that are to wait may wait for others first: fewer requests leave the broker time for what is due.
_BATCHING = Batching(max_latency=0.01)
#: Seconds that the number of tiers is believed.
_KNOWN_S = 30.0
#: As long as the header that names a message at home can be.
_ID: Header = (ID_HEADER, bytes(60))


def router_watch() -> ServiceWatch:
    """Returns a watch for delay routers."""
    waits = "delayed messages are stored and not delivered"
    return ServiceWatch("delay router", "kafka-pubsub service router", waits)


class DelayedPublisher:
    """Publishes with a delay to all topics of one cluster."""

    def __init__(
        self,
        topics: DelayTopics,
        writers: WriterPool,
        backend: Backend,
        watch: ServiceWatch,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._topics, self._backend, self._wall = topics, backend, wall
        self._homes = Homes(backend)
        self._publisher = _IngestPublisher(INGEST, self._target, writers, self._homes)
        self._publisher.configure(batching=_BATCHING)
        self._watch = watch
        watch.running = topics.is_routed
        # The topics of which delayed messages were published here.
        self._published: set[str] = set()
        self._lock = threading.Lock()
        self._tiers, self._known_until = 0, float("-inf")

    def publish(
        self,
        topic: Home,
        data: bytes,
        ordering_key: str | None,
        attributes: Mapping[str, str] | None,
        delay: float | timedelta | None,
        deliver_at: datetime | None,
        priority: int | None = None,
        durable: bool | None = None,
    ) -> Future[str]:
        """Queues a message for later, or straight home if that is now. Its home is the topic, or one of its lanes."""
        due = parse_due(delay, deliver_at, self._wall())
        laned = priority is not None or durable is not None
        if due is None and not laned:
            return topic.publish(data, ordering_key, attributes)
        if due is None:
            return topic.publish_in(data, ordering_key, attributes, priority, durable)
        home = topic.lane_publisher(topic.choose(priority, durable)) if laned else topic
        if not isinstance(data, bytes):
            raise refuse_data(data)
        key = None if ordering_key is None else encode_key(ordering_key)
        headers = [] if attributes is None else encode_attributes(attributes)
        self._publisher.vet(home, data, key, [_ID, *headers])
        check_longest(due, self._look())
        self._used(topic.name)
        address = self._homes.address(home.name)
        return self._publisher.relay(data, _key(home.name, key), [_header(address, due), *headers])

    def publish_many(self, home: Home, messages: Messages) -> PublishFutures:
        """Queues messages in their order, each for later or straight home."""
        tiers = self._look()
        for index, due in messages.dues.items():
            try:
                check_longest(due, tiers)
            except InvalidArgument as error:
                raise at_item(index, error) from None
        self._used(home.name)
        return self._publisher.relay_many(home, messages)

    def _used(self, topic: str) -> None:
        """Notes that delayed messages of a topic are about to be published."""
        if not self._published:
            PARTS.add(self._publisher)
        self._published.add(topic)
        self._watch.used()

    def cancel(self, home: str | None, message_id: str, timeout: float) -> bool:
        """Cancels a delayed message; see `Topic.cancel`."""

        def send(key: bytes, header: Header, partitions: int) -> int:
            self._watch.used()
            self._publisher.learn(partitions)
            try:
                stored = self._publisher.relay(b"", key, [header]).result(timeout)
            except TimeoutError:
                raise DeadlineExceeded(
                    f"the request to cancel {message_id!r} wasn't stored within {timeout:g} s"
                ) from None
            return int(stored.rpartition(":")[2])

        return cancel_delayed(self._backend, self._topics, send, home, message_id, timeout)

    def waiting(
        self,
        message_id: str | None = None,
        on_read: Callable[[int], object] = lambda count: None,
        *,
        bodies: bool = False,
    ) -> Iterator[WaitingMessage]:
        """Yields what waits in all partitions, or only the message of that id."""
        layout = self._topics.find()
        topic, partition, offset = (INGEST, 0, None) if message_id is None else parse_id(message_id)
        if layout is None or topic != INGEST or partition >= layout.partitions:
            return
        fetch = self._backend.record_fetch()
        try:
            for number in range(layout.partitions) if offset is None else (partition,):
                yield from waiting_messages(
                    self._backend.admin, fetch, layout, number, offset=offset, bodies=bodies, on_read=on_read
                )
        finally:
            fetch.close()

    def resume(self, home: str, ordering_key: str) -> None:
        """Allows delayed publishing with a key again."""
        self._publisher.resume_key(home.encode() + b"\0" + encode_key(ordering_key))

    def would_block(self, size: int) -> bool:
        """Whether a delayed message would have to wait now: to look topics up, or because too much is on its way."""
        known = time.monotonic() < self._known_until and self._homes.is_fresh
        return not known or self._publisher.would_block(size)

    def look_again(self) -> None:
        """A topic was made, changed or deleted by this process."""
        self._homes.forget()

    def flush(self, topic: str, timeout: float | None = None) -> None:
        """Waits until the delayed messages of a topic are stored or have failed; `DeadlineExceeded` after `timeout`.

        If there are any, it waits for those of other topics as well, because one log holds them all.
        """
        if topic in self._published:
            self._publisher.flush(timeout)

    @property
    def publisher(self) -> _IngestPublisher:
        """The publisher of the topic of ingest, to be closed with the others."""
        return self._publisher

    def _look(self) -> int:
        """How many tiers there are; makes them at first. Without a broker's answer as many as there may be."""
        with self._lock:
            if time.monotonic() < self._known_until:
                return self._tiers
            try:
                found = self._topics.find() or self._topics.make()
            except (BrokerUnavailable, DeadlineExceeded):
                return self._tiers or MOST_TIERS
            self._tiers, self._known_until = found.tiers, time.monotonic() + _KNOWN_S
            return self._tiers

    def _target(self) -> PublishTarget:
        if self._topics.find() is None:
            self._topics.make()
        info = self._topics.ingest()
        return PublishTarget(True, info.max_message_bytes, None, info.partitions)


class _IngestPublisher(TopicPublisher):
    """Publishes with headers and keys of ours."""

    def __init__(
        self, name: str, target: Callable[[], PublishTarget], writers: WriterPool, homes: Homes
    ) -> None:
        super().__init__(name, target, writers)
        self._homes = homes

    def vet(self, home: TopicPublisher, data: bytes, key: bytes | None, headers: list[Header]) -> None:
        """Raises what the home topic would refuse the message for now."""
        home._look(data, key, headers)
        if key is not None and home._no_keys is not None:
            raise fresh(home._no_keys)

    def relay(self, data: bytes, key: bytes | None, headers: list[Header]) -> PublishFuture:
        """Queues a message as it is."""
        self._look(data, key, headers)
        with self._lock:
            future = PublishFuture(self._outstanding.current)
            self._publish_with_care(future, data, key, headers)
            count = future.epoch.sent_messages
        if not count & TURN_MASK and self._last_reporter is not None:
            self._last_reporter.take_turn()
        return future

    def relay_many(self, home: Home, messages: Messages) -> PublishFutures:
        """Queues messages in their order: here if they are delayed, else at home."""
        count = len(messages.data)
        runs = list(_runs(messages.dues, count))
        home.check_many(_at_home(messages))
        homes = {index: home.home_of(index, messages) for index in messages.dues}
        addresses = {name: self._homes.address(name) for name in set(homes.values())}
        relayed = _relayed(messages, homes, addresses)
        for delayed, start, end in runs:
            if delayed:
                self._look_over(relayed, start, end)
        later = dict.fromkeys(messages.dues, self._outstanding.current)
        futures = PublishFutures(home._outstanding.current, count, later)
        return futures.fill(
            relayed,
            ((self.queue_run if delayed else home.queue_run, start, end) for delayed, start, end in runs),
        )

    def learn(self, partitions: int) -> None:
        """Asks how many partitions there are, unless that is known: a request goes to one of them by its key."""
        if self._layout.partitions != partitions:
            self._doubtful = True
            self.renew()

    def resume_key(self, key: bytes) -> None:
        """Allows publishing of a key again, as `resume` does."""
        if key in self._paused:
            self.flush(30.0)
            self._paused.pop(key, None)

    def _refuse_paused(self, key: bytes) -> PubSubError:
        home, _, own = key.partition(b"\0")
        return OrderingKeyPaused(
            f"ordering key {own.decode()!r:.200} is paused for delayed messages of topic {home.decode()!r}, since an "
            f"earlier one failed ({self._paused[key].message}); decide about that message, then call "
            "topic.resume(ordering_key)"
        )


def _runs(delayed: Collection[int], count: int) -> Iterator[tuple[bool, int, int]]:
    """Yields where runs of delayed messages, and of others, begin and end."""
    start = 0
    for later, run in groupby(range(count), delayed.__contains__):
        end = start + len(list(run))
        yield later, start, end
        start = end


def _at_home(messages: Messages) -> Messages:
    """The messages as they will be at home."""
    headers = messages.headers.copy()
    for index in messages.dues:
        headers[index] = [_ID, *(headers[index] or ())]
    return messages._replace(headers=headers, largest=messages.largest + headers_size([_ID]))


def _relayed(messages: Messages, homes: Mapping[int, str], addresses: Mapping[str, str]) -> Messages:
    """The messages as they are queued: those that are delayed as they come in. `homes`: their homes, by index."""
    keys, headers, most = messages.keys.copy(), messages.headers.copy(), 0
    for index, due in messages.dues.items():
        home = homes[index]
        header = _header(addresses[home], due)
        keys[index] = _key(home, keys[index])
        headers[index] = [header, *(headers[index] or ())]
        most = max(most, len(home) + 1 + headers_size([header]))
    largest = messages.largest + most
    return messages._replace(keys=keys, headers=headers, largest=largest)


def check_longest(due: Due, tiers: int) -> None:
    """`InvalidArgument` if it is further away than so many tiers can hold."""
    most = longest(tiers)
    if due.wait > most * 1000:
        name = "delay" if due.at is None else "deliver_at"
        raise InvalidArgument(
            f"{name}: {timedelta(milliseconds=due.wait)} is longer than the {timedelta(seconds=most)} ({most} s) that "
            f"the {tiers} delay tiers of this cluster can hold"
        )


def _key(home: str, key: bytes | None) -> bytes | None:
    return None if key is None else home.encode() + b"\0" + key


def _header(address: str, due: Due) -> Header:
    return DELAY_HEADER, encode_request(DelayRequest(address, due.at, due.after))
