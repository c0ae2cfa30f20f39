"""A topic that is given more partitions while a world lives on (I12).

Theory. `Repartitioner` is the client's own; whenever it waits, the world goes on, and with it everything that may
befall it. A repartitioning may run out of time and be called again. Publishers are modelled: each looks at the topic's
record now and then, and goes by its last look (`publish/publisher.py`: refuses keys during a change, spreads them over
the new number afterwards). The ledger judges the promise: no message of a key begins in a new partition before
all earlier messages of its key are finished in the old partition.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from random import Random

from kafka_pubsub.administration import manage_topics
from kafka_pubsub.config import SubscriptionRecord, TopicOptions, TopicRecord
from kafka_pubsub.errors import DeadlineExceeded, FailedPrecondition
from kafka_pubsub.log.memory import MemoryBackend
from kafka_pubsub.log.partitioner import partition_of
from kafka_pubsub.repartition.repartition import Repartitioner
from tests.simulation.plan import Plan

__all__ = ["FENCE", "RENEW", "Growth", "Layout", "Publisher"]

#: Seconds between a publisher's looks, and for which the change waits for them: in the same proportion as the client's.
RENEW, FENCE = 6.0, 15.0
#: Times that somebody tries: each lets the world live on for up to a minute.
TRIES = 3


class Publisher:
    """A publisher that goes by its last look at the topic."""

    def __init__(self, look: Callable[[], TopicRecord], now: Callable[[], float]) -> None:
        self._look, self._now = look, now
        self._seen, self._seen_at = look(), now()

    def place(self, key: bytes | None, random: Random) -> int | None:
        """The partition of a message; None: it has a key, and keys are refused."""
        if self._now() - self._seen_at >= RENEW:
            self._seen, self._seen_at = self._look(), self._now()
        count = self._seen.options.partitions
        if key is None:
            return random.randrange(count)
        return None if self._seen.repartition is not None else partition_of(key, count)


class Layout(Repartitioner):
    """The client's own. Groups in memory see a new partition by themselves."""

    def _notify(self, record: SubscriptionRecord) -> None:
        """Nobody waits for metadata here."""


class Growth(ABC):
    """The part of a world that has to do with its layout."""

    plan: Plan
    random: Random
    backend: MemoryBackend

    def __init__(self) -> None:
        #: How many partitions the topic has by the catalog.
        self.partitions = 0
        self._publishers: list[Publisher] = []
        self._changing = False
        self._tries = 0

    @abstractmethod
    def now(self) -> float: ...
    @abstractmethod
    def between(self, low: float, high: float) -> float: ...
    @abstractmethod
    def say(self, text: str) -> None: ...
    @abstractmethod
    def passes(self, seconds: float) -> None:
        """So much time passes, and others go on."""

    @abstractmethod
    def grown(self, before: int) -> None:
        """The topic has more partitions than `before`."""

    def begin_layout(self, topic: str, topic_id: str) -> None:
        """The topic as the catalog knows it."""
        self.partitions = self.plan.partitions
        options = TopicOptions(partitions=self.partitions)
        self.backend.catalog.put_topic(TopicRecord(name=topic, topic_id=topic_id, options=options), None)
        self._topic = topic
        self._publishers = [Publisher(self._layout, self.now) for _ in range(2 if self.plan.grows else 1)]

    def _layout(self) -> TopicRecord:
        return self.backend.catalog.topics()[self._topic]

    def place(self, key: bytes | None) -> int | None:
        """Where somebody publishes a message; None: nowhere just now."""
        publishers = self._publishers
        publisher = publishers[0] if len(publishers) == 1 else self.random.choice(publishers)
        return publisher.place(key, self.random)

    def grow(self) -> None:
        """Somebody changes the topic's layout, or goes on with that."""
        self._tries += 1
        if self._tries <= TRIES:
            self.change_layout(self.plan.partitions + self.plan.grows, self.between(1.0, 60.0))

    def change_layout(self, partitions: int, timeout: float) -> bool:
        """Whether the topic has so many partitions now."""
        if self._changing or self.partitions > self.plan.partitions:
            return self.partitions > self.plan.partitions
        self._changing = True
        self.say(f"its layout is to have {partitions} partitions")
        topics = manage_topics(self.backend, may_create=True)
        change = Layout(self.backend, topics, may_create=True, fence=FENCE, clock=self.now, sleep=self.passes)
        try:
            change.run(self._topic, partitions, timeout=timeout)
        except (DeadlineExceeded, FailedPrecondition) as waits:
            self.say(waits.message)
            return False
        finally:
            self._changing = False
        before, self.partitions = self.partitions, partitions
        if partitions > before:
            self.say(f"its layout has {partitions} partitions")
            self.grown(before)
        return True
