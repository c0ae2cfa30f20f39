"""Brokers in memory that say of some topics what isn't true."""

from __future__ import annotations

from kafka_pubsub import NotFound, PubSubError
from kafka_pubsub.log.memory import FaultPlan

__all__ = ["Wrong"]


class Wrong(FaultPlan):
    """Says of some topics what isn't true: that there are none, or that nothing can be written to them."""

    def __init__(self) -> None:
        self.missing: set[str] = set()
        self.unwritable: dict[str, PubSubError] = {}
        self.asked = 0

    def request(self, operation: str, name: str) -> PubSubError | None:
        if operation == "topic" and name in self.missing:
            self.asked += 1
            return NotFound(f"topic {name!r} not found")
        return None

    def refuses(self, transactional_id: str, topic: str, key: bytes | None) -> PubSubError | None:
        return self.unwritable.get(topic)
