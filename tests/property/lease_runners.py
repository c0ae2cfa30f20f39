"""Holders of the model of `test_partition`."""

from __future__ import annotations

from dataclasses import dataclass, field

from kafka_pubsub.log.records import Record
from kafka_pubsub.subscribe.partition.events import LeaseReport
from kafka_pubsub.subscribe.partition.leases import Lease

__all__ = ["Inline", "Runner"]


@dataclass(eq=False)
class Inline:
    """An inline lease of the model: how far its walking thread has come."""

    lease: Lease
    records: list[Record]
    reached: int = 0
    acked: set[int] = field(default_factory=set)
    left: list[LeaseReport] = field(default_factory=list)
    skip: set[bytes] = field(default_factory=set)
    skipped: list[Record] = field(default_factory=list)


@dataclass(eq=False)
class Runner:
    """A holder of the model: takes its lease's records in order."""

    lease: Lease
    first: int  # offset at which it began
    acked: int = 0
    began: bool = False
    stopped: bool = False
    withdrawn: bool = False
    kept: bool = False
    started: float = 0.0
    offsets: list[int] = field(default_factory=list)
