"""What a partition's state machine is told once: its measures, the subscription's rules, where an ownership begins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kafka_pubsub.core.effects import Commit
from kafka_pubsub.core.offsets import Run
from kafka_pubsub.core.redelivery import Backoff

__all__ = ["HANDED", "RECORD_OVERHEAD", "SHORTEST_RUN", "Rules", "Start"]

#: Records that one sweep hands over together, where runs allow it: some milliseconds of work for fast handlers.
#: Fewer would cost round trips; more would spread the finished ones so far that the map fills.
HANDED = 1024
SHORTEST_RUN = 16

#: Bytes that a buffered record costs beside its body: the objects that hold it.
RECORD_OVERHEAD = 500


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
