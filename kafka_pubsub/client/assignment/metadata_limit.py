"""Whether the brokers store as much text beside a committed offset as commits may need.

Rules
1. Asked before a subscription is made and before it is first received from; once the answer is good, or can't be had,
   not again.
2. Where it can't be had - the right to see brokers' settings is missing - a commit that is refused for it says the
   same.
"""

from __future__ import annotations

from kafka_pubsub.core.commit import ack_map
from kafka_pubsub.errors import FailedPrecondition
from kafka_pubsub.ports import Admin

__all__ = ["MetadataLimit"]


class MetadataLimit:
    """Looks once for one cluster."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin
        self._suffices = False

    def check(self) -> None:
        """`FailedPrecondition` if a broker is known to store less."""
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
