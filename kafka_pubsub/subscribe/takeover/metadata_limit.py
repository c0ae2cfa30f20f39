"""Checks that the brokers store as much metadata beside a position as commits may need.

Rules
1. It asks before a subscription is made and before the first receive; after a good answer, or none, not again.
2. If it may not see the brokers' settings, a commit that is refused for its size brings the same error.
"""

from __future__ import annotations

from kafka_pubsub.errors import FailedPrecondition
from kafka_pubsub.log.ports import Admin
from kafka_pubsub.subscribe.formats import ack_map

__all__ = ["MetadataLimit"]


class MetadataLimit:
    """The check for one cluster, done once."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin
        self._suffices = False

    def check(self) -> None:
        """Raises `FailedPrecondition` if a broker is known to store less."""
        if self._suffices:
            return
        needed = ack_map.CAPACITY + 1  # a broker stores one character less than the setting says
        limit = self._admin.metadata_limit()
        if limit is not None and limit < needed:
            raise FailedPrecondition(
                f"a broker is set to offset.metadata.max.bytes={limit}, and a subscription needs {needed} (Kafka's "
                "default is 4096) for what it stores beside a position: raise the setting on every broker"
            )
        self._suffices = True
