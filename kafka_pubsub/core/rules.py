"""What a partition's state machine is told once: the subscription's rules, and where an ownership begins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kafka_pubsub.core.effects import Commit
from kafka_pubsub.core.offsets import Run
from kafka_pubsub.core.redelivery import Backoff

__all__ = ["Rules", "Start"]


class Rules(NamedTuple):
    """What the subscription asks for. Durations are seconds."""

    ordered: bool
    ack_deadline: float = 10.0
    max_extension: float = 3600.0
    backoff: Backoff = Backoff()


class Start(NamedTuple):
    """Where an ownership begins: what the log holds, and which keys old handlers of this process still have."""

    number: int
    epoch: int
    writer: int
    stored: Commit
    position: int
    known: Sequence[Run] = ()
    held_back: Sequence[bytes] = ()
