"""What only Kafka knows, for a scrape: how far subscriptions are, what waits in delays and causal topics, what runs.

Theory. A scrape must not wait for a broker. So a thread of its own asks Kafka every few seconds while scrapes come,
and a scrape gets what was found last, with its age. Only the first scrape waits, for a moment.

Rules
1. What can't be read keeps its last figures for `FORGET` seconds; then it is left out. The age of Kafka's newest answer
   is always told: without it the alert about silence would end with the figures.
2. The thread ends when no scrape has come for `IDLE` seconds, and begins with the next one.
3. Without `everything` only the subscriptions are asked about from which this process receives.
4. `AT_ONCE` questions are asked at once, and each answer counts when it comes, so a broker that hangs delays only what
   it was asked.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
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
#: Questions that are asked at once.
AT_ONCE: Final = 8
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
        # When Kafka answered last; before the first answer, when the view began.
        self._answered_at = time.monotonic()
        self._failures = 0
        self._troubles = TroubleLog(_log)

    def readings(self) -> list[Reading]:
        """Returns what was found last; only the first call waits, for `FIRST` seconds at most."""
        self._scraped_at = time.monotonic()
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._answered_at = time.monotonic()
                self._thread = threading.Thread(target=self._run, name="kafka_pubsub-view", daemon=True)
                self._thread.start()
        if not self._waited:
            self._waited = True
            self._looked.wait(FIRST)
        now = time.monotonic()
        found = [each for each in list(self._found.values()) if now - each.at < FORGET]
        return [
            Reading({}, {"view_failures": self._failures}, {"view_age": now - self._answered_at}),
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
        clusters = [each for each in self._clusters() if each.connected]
        questions = [(each, name, ask) for each in clusters for name, ask in self._questions(each)]
        if not questions:
            self._answered_at = time.monotonic()
        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="kafka_pubsub-view") as threads:
            for _ in threads.map(lambda question: self._ask(*question), questions):
                pass
        asked = {(id(cluster), name) for cluster, name, _ in questions}
        for key in self._found.keys() - asked:
            del self._found[key]

    def _ask(self, cluster: Cluster, name: str, ask: Callable[[], Iterable[Reading]]) -> None:
        key = id(cluster), name
        try:
            self._found[key] = _Found(list(ask()), time.monotonic())
        except NotFound:  # it is deleted, or was never made
            self._found.pop(key, None)
        except Exception as error:
            if cluster.connected:  # else it was closed meanwhile
                self._fail(name, error)
            return
        self._answered_at = time.monotonic()

    def _fail(self, name: str, error: Exception) -> None:
        with self._lock:
            self._failures += 1
            if isinstance(error, PubSubError):
                self._troubles.tell(error, "metrics: %s isn't known now: %s", name, error)
            else:
                _log.error("metrics: asking about %s failed; going on", name, exc_info=error)

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
        except PubSubError as error:
            self._fail("the catalog", error)
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
    times = {
        "oldest_age": state.oldest,
        "oldest_at_home": state.oldest_at_home,
        "oldest_parked": state.oldest_parked,
    }
    return {**gauges, **{name: _age(since) for name, since in times.items()}}


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
