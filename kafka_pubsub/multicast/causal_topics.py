"""The causal topics as the catalog lists them: which participants there are, and which are gone.

Rules
1. A participant is gone if the catalog, read up to its end, doesn't list it. No answer of a broker means that: a topic
   that a broker doesn't find is away, and is asked for again.
2. A look counts for what was staged before it, because a topic is listed before anything is staged for it.
"""

from __future__ import annotations

from typing import NamedTuple

from kafka_pubsub.errors import NotFound
from kafka_pubsub.log.ports import Backend
from kafka_pubsub.multicast.inbox_topics import participants_of
from kafka_pubsub.topics.names import inbox_topic

__all__ = ["CausalTopic", "CausalTopics"]


class CausalTopic(NamedTuple):
    """A causal topic of the catalog; one that was deleted stays listed while its inbox answers."""

    name: str
    topic_id: str
    inbox_id: str
    partitions: int
    deleted: bool


class CausalTopics:
    """The causal topics at the last look, by their inboxes. `looks`: how many there were."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.looks = 0
        self.inboxes: dict[str, CausalTopic] = {}
        self._names: set[str] = set()
        self.look()

    def look(self) -> None:
        """Reads the catalog up to its end."""
        records = self._backend.catalog.topics()
        self.looks += 1
        self.inboxes = {
            inbox_topic(name): CausalTopic(
                name, each.topic_id, each.inbox_id, each.options.partitions, each.state == "deleting"
            )
            for name, each in sorted(records.items())
            if each.options.causal and each.inbox_id
        }
        self._names = participants_of(records.values())

    def lists(self, name: str) -> bool:
        """Returns whether the last look found the participant."""
        return name in self._names

    def finds(self, name: str) -> bool:
        """Returns whether the participant is listed; looks again for one that isn't."""
        if not self.lists(name):
            self.look()
        return self.lists(name)

    def has_home(self, topic: str) -> bool:
        """Returns whether a topic may be written to: one that was deleted may be gone from Kafka."""
        if not self.inboxes[inbox_topic(topic)].deleted:
            return True
        try:
            return bool(self._backend.admin.topic(topic))
        except NotFound:
            return False
