"""What `PubSub` and `Topic` do with causal topics: find them, publish to them, delete them.

Rules
1. What is known of a topic counts for `_KNOWN_S` seconds. A topic that is deleted meanwhile refuses by its inbox.
2. A causal topic's deletion gets its place in the order before the topic is deleted from Kafka.
3. A topic that the catalog lists, and that no broker finds, is asked for again until the time of a future has run out:
   brokers may be behind with their metadata, as after `create_topic`.
4. A topic whose inbox is lost is deleted without a place; sequencers refuse what waits for it elsewhere, once the
   catalog doesn't list it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import TypeVar

from kafka_pubsub.config import TopicRecord
from kafka_pubsub.errors import FailedPrecondition, NotFound
from kafka_pubsub.log.clocks import wall_time
from kafka_pubsub.log.ports import Backend
from kafka_pubsub.model import Header, TopicInfo
from kafka_pubsub.multicast.arguments import (
    check_inbox,
    check_message,
    check_names,
    check_publish,
    check_route,
    target_of,
)
from kafka_pubsub.multicast.batch import BatchMessage
from kafka_pubsub.multicast.future import IdFuture, SentFuture
from kafka_pubsub.multicast.inbox_topics import why_unordered
from kafka_pubsub.multicast.layout import GROUP
from kafka_pubsub.multicast.publisher import TIMEOUT, MulticastPublisher
from kafka_pubsub.multicast.routes import Route, Target
from kafka_pubsub.multicast.status import CausalStatus, look_at_causal_topic
from kafka_pubsub.publish.service_watch import ServiceWatch

__all__ = ["Multicast"]

T = TypeVar("T")
Kind = TypeVar("Kind", SentFuture, IdFuture)

_KNOWN_S = 30.0
#: Seconds before brokers are asked again for a topic that they don't find.
_PAUSE = 0.1
#: Sets of topics that are remembered.
_ROUTES = 10_000
_NO_ROUTE = 0.0, Route(())


class Multicast:
    """The causal topics of one cluster, as this process uses them."""

    def __init__(
        self,
        backend: Backend,
        find: Callable[[str], tuple[TopicRecord, TopicInfo]],
        watch: ServiceWatch,
        timeout: float = TIMEOUT,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._backend, self._find, self._sleep = backend, find, sleep
        self._timeout = timeout
        self._publisher = MulticastPublisher(backend, watch, timeout)
        # Until when it counts, and the topic; the same of the topics and handles of a call.
        self._known: dict[str, tuple[float, Target]] = {}
        self._routes: dict[tuple[tuple[str, ...], tuple[str, ...]], tuple[float, Route]] = {}

    def publish(
        self,
        topics: Iterable[str],
        data: bytes,
        ordering_key: str | None,
        attributes: Mapping[str, str] | None,
        handles: Iterable[str] = (),
    ) -> SentFuture:
        """Publishes a message to several causal topics; see `PubSub.publish_multi`."""
        route, now = self._route(topics, handles), wall_time(self._backend.clock)
        return self._publish(route, check_publish(route, data, ordering_key, attributes, now), SentFuture)

    def publish_to(
        self, topic: str, data: bytes, key: bytes | None, headers: list[Header] | None
    ) -> Future[str]:
        """Publishes to one causal topic; the future gives the message's id."""
        route, now = self._route([topic], ()), wall_time(self._backend.clock)
        return self._publish(route, check_message(route, data, key, headers or [], now), IdFuture)

    def _publish(self, route: Route, message: BatchMessage, kind: type[Kind]) -> Kind:
        self._start()
        return self._publisher.publish(route, message, kind)

    def delete(self, topic: str, notify: Iterable[str] = ()) -> bool:
        """Gives a topic's deletion its place in the order, and tells these topics.

        Returns False if it has no place, because the topic's inbox is lost (rule 4).
        """
        record = self._backend.catalog.topics()[topic]
        targets = [self._target("notify", each) for each in check_names("notify", notify) if each != topic]
        unordered = why_unordered(self._backend.admin, record, self._sleep)
        if not unordered:
            mine = Target(topic, record.options.partitions, 0, record.inbox_id, record.topic_id)
            self._start()
            self._publisher.delete(mine, targets)
        elif targets:
            raise FailedPrecondition(
                f"notify: the deletion of topic {topic!r} has no place in the order of which topics could be told, "
                f"because {unordered}: delete the topic without notify"
            )
        self._known.pop(topic, None)
        self._routes.clear()
        return not unordered

    def status(
        self, topic: str | None, on_read: Callable[[int], object] = lambda count: None
    ) -> list[CausalStatus]:
        """Returns how the partitions of a causal topic are, or of all; see `PubSub.multicast.status`."""
        if topic is not None:
            target_of("topic", *self._find(topic))
        catalog = self._backend.catalog.topics()
        records = [catalog[name] for name in sorted(catalog) if topic in (None, name)]
        fetch = self._backend.record_fetch()
        try:
            return [
                each
                for record in records
                if record.options.causal and record.topic_id
                for each in look_at_causal_topic(self._backend, fetch, record, on_read)
            ]
        finally:
            fetch.close()

    def sequencers(self) -> int:
        """Counts the sequencers that run now."""
        return self._backend.admin.group_members(GROUP)

    def flush(self, topic: str, timeout: float | None) -> None:
        """Waits until every message to a topic has its place in the order or has failed."""
        self._publisher.flush(topic, timeout)

    def close(self) -> None:
        """Waits for receipts for a few seconds, and ends."""
        self._publisher.close()

    def _route(self, topics: Iterable[str], handles: Iterable[str]) -> Route:
        if isinstance(topics, list | tuple) and isinstance(handles, list | tuple):
            try:
                until, route = self._routes.get((tuple(topics), tuple(handles)), _NO_ROUTE)
            except TypeError:  # something among them isn't a name
                return self._find_route(topics, handles)
            if time.monotonic() < until:
                return route
        return self._find_route(topics, handles)

    def _find_route(self, topics: Iterable[str], handles: Iterable[str]) -> Route:
        names, carried = check_names("topics", topics), check_names("handles", handles)
        until = time.monotonic() + _KNOWN_S
        route = Route(
            [self._target("topics", each) for each in names],
            [self._target("handles", each) for each in carried],
        )
        check_route(route)
        if len(self._routes) >= _ROUTES:
            self._routes.clear()
        self._routes[tuple(names), tuple(carried)] = until, route
        return route

    def _target(self, field: str, name: str) -> Target:
        until, target = self._known.get(name, (0.0, None))
        if target is None or time.monotonic() > until:
            target = self._ask_until_found(lambda: self._look_up(field, name), lambda: self._lists(name))
            self._known[name] = time.monotonic() + _KNOWN_S, target
        return target

    def _look_up(self, field: str, name: str) -> Target:
        target = target_of(field, *self._find(name))
        check_inbox(self._backend.admin, target)
        return target

    def _lists(self, name: str) -> bool:
        """Whether the catalog has the topic."""
        record = self._backend.catalog.topics().get(name)
        return record is not None and record.state == "ready"

    def _start(self) -> None:
        if not self._publisher.started:
            self._ask_until_found(self._publisher.start, lambda: True)

    def _ask_until_found(self, ask: Callable[[], T], listed: Callable[[], bool]) -> T:
        """Returns the answer; asks again while no broker finds what is listed (rule 3)."""
        until = time.monotonic() + self._timeout
        while True:
            try:
                return ask()
            except NotFound:
                if time.monotonic() > until or not listed():
                    raise
            self._sleep(_PAUSE)
