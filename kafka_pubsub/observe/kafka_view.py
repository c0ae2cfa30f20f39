"""What only Kafka knows, for a scrape: how far subscriptions are, what waits in delays and causal topics, what runs.

Theory. A scrape must not wait for a broker. So a thread of its own asks Kafka every few seconds while scrapes come,
and a scrape gets what was found last, with its age. Only the first scrape waits, for a moment.

Rules
1. What can't be read keeps its last figures, with their age, for `FORGET` seconds; then it is left out.
2. The thread ends when no scrape has come for `IDLE` seconds, and begins with the next one.
3. Without `everything` only the subscriptions are asked about from which this process receives.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Final, NamedTuple

from kafka_pubsub.cluster import OPEN, Cluster
from kafka_pubsub.counters import Reading
from kafka_pubsub.delays.overdue import look_at_delays
from kafka_pubsub.errors import NotFound, PubSubError
from kafka_pubsub.log.trouble_log import TroubleLog
from kafka_pubsub.subscribe.stream.status import SubscriptionState, state_of

__all__ = ["KafkaView"]

_log = logging.getLogger("kafka_pubsub.metrics")

#: Seconds between two looks, for which the first scrape waits, after which figures are left out, and without a scrape.
EVERY: Final = 5.0
FIRST: Final = 0.7
FORGET: Final = 300.0
IDLE: Final = 120.0
#: The messages of the retry topics that are read, and the dead letters, of each subscription.
LIMIT: Final = 1000


_PREFIX: Final = "subscription "


class _Found(NamedTuple):
    readings: list[Reading]
    at: float


class KafkaView:
    """Asks Kafka about the clusters that are in use. `everything`: about all their subscriptions and services."""

    def __init__(
        self,
        *,
        everything: bool = False,
        every: float = EVERY,
        clusters: Callable[[], Iterable[Cluster]] | None = None,
    ) -> None:
        self._everything, self._every = everything, every
        self._clusters = clusters or (lambda: list(OPEN))
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._scraped_at = 0.0
        # Whether a scrape has waited for the first look.
        self._waited = False
        # Set after the first look.
        self._looked = threading.Event()
        #: What was found last, by what was asked.
        self._found: dict[tuple[int, str], _Found] = {}
        self._failures = 0
        self._troubles = TroubleLog(_log)

    def readings(self) -> list[Reading]:
        """Returns what was found last; only the first call waits, for `FIRST` seconds at most."""
        self._scraped_at = time.monotonic()
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="kafka_pubsub-view", daemon=True)
                self._thread.start()
        if not self._waited:
            self._waited = True
            self._looked.wait(FIRST)
        now = time.monotonic()
        found = [each for each in list(self._found.values()) if now - each.at < FORGET]
        age = {"view_age": max((now - each.at for each in found), default=0.0)} if found else {}
        return [
            Reading({}, {"view_failures": self._failures}, age),
            *(reading for each in found for reading in each.readings),
        ]

    def _run(self) -> None:
        while time.monotonic() - self._scraped_at < IDLE:
            try:
                self.look()
            except Exception:
                self._failures += 1
                _log.exception("asking Kafka for metrics failed; going on")
            self._looked.set()
            time.sleep(self._every)

    def look(self) -> None:
        """Asks once."""
        found: dict[tuple[int, str], _Found] = {}
        for cluster in [each for each in self._clusters() if each.connected]:
            for name, ask in self._questions(cluster):
                key = id(cluster), name
                try:
                    found[key] = _Found(list(ask()), time.monotonic())
                except NotFound:
                    pass  # it is deleted, or was never made
                except PubSubError as error:
                    if not cluster.connected:
                        break  # it was closed meanwhile
                    self._failures += 1
                    self._troubles.tell(error, "metrics: %s isn't known now: %s", name, error)
                    if key in self._found:
                        found[key] = self._found[key]
        self._found = found

    def _questions(self, cluster: Cluster) -> Iterator[tuple[str, Callable[[], Iterable[Reading]]]]:
        for name in self._names(cluster):
            yield _PREFIX + name, partial(_subscription, cluster, name)
        if self._everything:
            yield "the delays", partial(_delays, cluster)
            yield "the causal topics", partial(_causal, cluster)

    def _names(self, cluster: Cluster) -> Iterable[str]:
        """Returns the subscriptions to ask about; those of before if the catalog can't be read."""
        if not self._everything:
            return cluster.pulling
        try:
            backend = cluster.backend
            catalog = backend.catalog
            return list(catalog.subscriptions())
        except PubSubError:
            mine = [name for owner, name in self._found if owner == id(cluster)]
            return [name.removeprefix(_PREFIX) for name in mine if name.startswith(_PREFIX)]


def _subscription(cluster: Cluster, name: str) -> Iterator[Reading]:
    record = cluster.subscriptions.usable(name)
    backend = cluster.backend
    state = state_of(backend, record, (), LIMIT)
    settings = backend.admin.topic(record.topic).config
    retention = int(settings.get("retention.ms") or -1)
    gauges = _figures(state)
    if retention >= 0:
        gauges["retention"] = retention / 1000
    yield Reading({"subscription": name, "topic": record.topic}, {}, gauges)


def _figures(state: SubscriptionState) -> dict[str, float]:
    names = ("lag", "backlog", "waiting_retry", "parked", "blocked_keys", "members", "dead_letters")
    found = {name: getattr(state, name) for name in names}
    gauges = {name: float(value) for name, value in found.items() if value is not None}
    return {**gauges, "oldest_age": _age(state.oldest), "oldest_parked": _age(state.oldest_parked)}


def _age(since: datetime | None) -> float:
    return 0.0 if since is None else max(0.0, (datetime.now(UTC) - since).total_seconds())


def _delays(cluster: Cluster) -> Iterator[Reading]:
    layout = cluster.delay_topics.find()
    if layout is None:
        return
    found = look_at_delays(cluster.backend, layout, cluster.wall_time())
    gauges: Mapping[str, float] = {
        "delayed_waiting": found.waiting,
        "delayed_overdue": found.overdue,
        "routers": cluster.delay_topics.routers(),
    }
    yield Reading({}, {}, gauges)


def _causal(cluster: Cluster) -> Iterator[Reading]:
    found = cluster.multicast.status(None)
    if not found:
        return
    yield Reading({}, {}, {"sequencers": cluster.multicast.sequencers()})
    pending: dict[str, int] = {}
    blocked: dict[str, float] = {}
    for each in found:
        pending[each.topic] = pending.get(each.topic, 0) + each.pending
        age = 0.0 if each.block is None else _age(each.block.since)
        blocked[each.topic] = max(blocked.get(each.topic, 0.0), age)
    for topic, count in pending.items():
        yield Reading({"topic": topic}, {}, {"causal_pending": count, "causal_block": blocked[topic]})
