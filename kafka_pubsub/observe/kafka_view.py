"""What only Kafka knows, for a scrape: how far subscriptions are, what waits in delays and causal topics, what runs.

Theory. A scrape must not wait for a broker. So a thread of its own asks Kafka every few seconds while scrapes come,
and a scrape gets what was found last, with its age. Only the first scrape waits, for a moment.

Rules
1. What can't be read keeps its last figures for `FORGET` seconds; then it is left out.
2. The thread ends when no scrape has come for `IDLE` seconds, and begins with the next one.
3. Without `everything` only the subscriptions are asked about from which this process receives.
4. `AT_ONCE` questions are asked at a time, and each answer is kept at once. One that isn't answered is waited for by
   its thread alone, and isn't asked again meanwhile.
5. The view's age is that of the newest answer to any question. It grows for as long as none comes, from the first
   question on; a process without questions has none.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Final, NamedTuple

from kafka_pubsub.cluster import OPEN, Cluster
from kafka_pubsub.counters import Reading
from kafka_pubsub.delays.overdue import look_at_delays
from kafka_pubsub.errors import FailedPrecondition, NotFound, PermissionDenied, PubSubError
from kafka_pubsub.log.trouble_log import TroubleLog
from kafka_pubsub.subscribe.stream.status import SubscriptionState, state_of

__all__ = ["KafkaView"]

_log = logging.getLogger("kafka_pubsub.metrics")

#: Seconds between two looks, for which the first scrape waits, after which figures are left out, and without a scrape.
EVERY: Final = 5.0
FIRST: Final = 0.7
FORGET: Final = 300.0
IDLE: Final = 120.0
#: How many questions are asked at a time, and the seconds that a look waits for their answers.
AT_ONCE: Final = 8
PATIENCE: Final = 5.0
#: The messages of the retry topics that are read, and the dead letters, of each subscription.
LIMIT: Final = 1000


_PREFIX: Final = "subscription "
#: A question: its cluster's `id`, and what is asked about.
_Key = tuple[int, str]


class _Found(NamedTuple):
    readings: list[Reading]
    at: float


class _Question(NamedTuple):
    cluster: Cluster
    name: str
    ask: Callable[[], Iterable[Reading]]

    @property
    def key(self) -> _Key:
        return id(self.cluster), self.name


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
        self._found: dict[_Key, _Found] = {}
        #: What waits to be asked, that and what is asked now, and the number of threads that ask.
        self._queue: deque[_Question] = deque()
        self._asked: set[_Key] = set()
        self._asking = 0
        #: When the last answer came, or the first question was asked; None: there was no question.
        self._answered_at: float | None = None
        self._failures = 0
        #: When a refusal was logged.
        self._denied_at: float | None = None
        self._troubles = TroubleLog(_log)

    def readings(self) -> list[Reading]:
        """Returns what was found last; only the first call waits, for `FIRST` seconds at most."""
        self._scraped_at = time.monotonic()
        with self._lock:
            if self._everything:
                self._begin()
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="kafka_pubsub-view", daemon=True)
                self._thread.start()
        if not self._waited:
            self._waited = True
            self._looked.wait(FIRST)
        now = time.monotonic()
        with self._lock:
            found = [each for each in self._found.values() if now - each.at < FORGET]
            answered, failures = self._answered_at, self._failures
        gauges = {"whole_view": 1.0} if self._everything else {}
        if answered is not None:
            gauges["view_age"] = max(0.0, now - answered)
        return [
            Reading({}, {"view_failures": failures}, gauges),
            *(reading for each in found for reading in each.readings),
        ]

    def _run(self) -> None:
        while time.monotonic() - self._scraped_at < IDLE:
            try:
                self.look()
            except Exception as error:
                self._fail("what there is", error)
            self._looked.set()
            time.sleep(self._every)

    def look(self) -> None:
        """Asks once, and waits `PATIENCE` seconds at most for the answers."""
        questions = [
            _Question(cluster, *each)
            for cluster in self._clusters()
            if cluster.connected
            for each in self._questions(cluster)
        ]
        with self._lock:
            if questions:
                self._begin()
            elif not self._everything:
                self._answered_at = None
            there = {each.key for each in questions}
            self._found = {key: each for key, each in self._found.items() if key in there}
            new = [each for each in questions if each.key not in self._asked]
            self._asked.update(each.key for each in new)
            self._queue += new
            more = max(0, min(AT_ONCE - self._asking, len(new)))
            self._asking += more
        threads = [
            threading.Thread(target=self._ask_all, name="kafka_pubsub-question", daemon=True)
            for _ in range(more)
        ]
        for thread in threads:
            thread.start()
        end = time.monotonic() + PATIENCE
        for thread in threads:
            thread.join(max(0.0, end - time.monotonic()))

    def _ask_all(self) -> None:
        while True:
            with self._lock:
                if not self._queue:
                    self._asking -= 1
                    return
                question = self._queue.popleft()
            self._ask(question)
            with self._lock:
                self._asked.discard(question.key)

    def _ask(self, question: _Question) -> None:
        try:
            readings = list(question.ask())
        except NotFound:  # it is deleted, or was never made
            with self._lock:
                self._found.pop(question.key, None)
            self._answered()
        except Exception as error:
            if question.cluster.connected:  # else it was closed meanwhile
                self._fail(question.name, error)
        else:
            with self._lock:
                self._found[question.key] = _Found(readings, time.monotonic())
            self._answered()

    def _begin(self) -> None:
        if self._answered_at is None:
            self._answered_at = time.monotonic()

    def _answered(self) -> None:
        with self._lock:
            self._answered_at = time.monotonic()

    def _fail(self, name: str, error: Exception) -> None:
        with self._lock:
            self._failures += 1
        if isinstance(error, PermissionDenied):
            self._tell_denied(name, error)
        elif isinstance(error, PubSubError):
            self._troubles.tell(error, "metrics: %s isn't known now: %s", name, error)
        else:
            _log.error("asking Kafka for metrics about %s failed; going on", name, exc_info=error)

    def _tell_denied(self, name: str, error: PermissionDenied) -> None:
        """Logs one refusal; others only when it is `FORGET` seconds old: there may be one for each subscription."""
        now = time.monotonic()
        with self._lock:
            told = self._denied_at is not None and now - self._denied_at < FORGET
            if not told:
                self._denied_at = now
        level = logging.DEBUG if told else logging.WARNING
        _log.log(level, "metrics: %s isn't known without the rights of the role monitor: %s", name, error)

    def _questions(self, cluster: Cluster) -> Iterator[tuple[str, Callable[[], Iterable[Reading]]]]:
        groups = _Groups(cluster)
        for name in self._names(cluster):
            yield _PREFIX + name, partial(_subscription, cluster, name, groups)
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
        except Exception as error:
            if cluster.connected:
                self._fail("the catalog", error)
            mine = [name for owner, name in list(self._found) if owner == id(cluster)]
            return [name.removeprefix(_PREFIX) for name in mine if name.startswith(_PREFIX)]


class _Groups:
    """The groups of a cluster, listed once for all questions of a look."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._lock = threading.Lock()
        self._listed: Mapping[str, bool] | PubSubError | None = None

    def listed(self) -> Mapping[str, bool]:
        with self._lock:
            if self._listed is None:
                backend = self._cluster.backend
                try:
                    self._listed = backend.admin.groups()
                except PubSubError as error:
                    self._listed = error
            if isinstance(self._listed, PubSubError):
                raise self._listed
            return self._listed


def _subscription(cluster: Cluster, name: str, groups: _Groups) -> Iterator[Reading]:
    # Not `usable`: that waits while a topic grows, and refuses those that nothing receives any more.
    record = cluster.subscriptions.record(name)
    backend = cluster.backend
    topic = backend.catalog.topics().get(record.topic)
    if record.detached or topic is None or topic.topic_id != record.topic_id:
        return
    try:
        state = state_of(backend, record, (), LIMIT, groups.listed())
        settings = backend.admin.topic(record.topic).config
    except NotFound as error:  # a topic of it is missing, which isn't as if the subscription was deleted
        raise FailedPrecondition(error.message) from error
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
        "retry_overdue": state.retry_due,
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
