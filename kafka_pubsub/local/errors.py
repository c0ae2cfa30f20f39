"""What can go wrong with the embedded Kafka, as one error.

Rule: every message names what was found and what to do about it; `code` is the canonical RPC code
(6 already exists, 8 resource exhausted, 9 failed precondition, 14 unavailable).
"""

from __future__ import annotations

from typing import ClassVar, Final

from kafka_pubsub.errors import PubSubError

__all__ = ["LocalKafkaError"]

ALREADY_EXISTS: Final = 6
RESOURCE_EXHAUSTED: Final = 8
FAILED_PRECONDITION: Final = 9
UNAVAILABLE: Final = 14


class LocalKafkaError(PubSubError):
    """The embedded Kafka can't carry out a call; the message says what to do (code 9 or a more exact one)."""

    default_code: ClassVar[int] = FAILED_PRECONDITION


class PartsMissing(LocalKafkaError):
    """Kafka or Java isn't on this machine yet, and couldn't be fetched; a test suite may skip then."""


class PortInUse(LocalKafkaError):
    """Another process listens on the port that the broker needs."""

    default_code: ClassVar[int] = UNAVAILABLE

    def __init__(self, port: int) -> None:
        super().__init__(
            f"Port {port} is in use by another program. Choose another (port=), or stop that "
            f"program; `ss -ltnp 'sport = :{port}'` or `lsof -i :{port}` shows which it is."
        )
        self.port = port

    def __reduce__(self) -> tuple[object, ...]:
        return (PortInUse, (self.port,))
