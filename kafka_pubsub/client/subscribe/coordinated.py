"""Interfaces and data of a coordinator: the retry topic's side, an ack that a caller waits for, a stream's counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from kafka_pubsub.core.effects import StoreMoves, Unstored, WriteDeadLetters

__all__ = ["Counts", "RetrySide", "Waiter"]


class RetrySide(Protocol):
    """The side of the retry topic (`retry_io`): takes a core's requests, and answers later."""

    def relocate(self, number: int, epoch: int, effect: StoreMoves) -> None: ...
    def bury(self, number: int, epoch: int, effect: WriteDeadLetters) -> None: ...
    def read(self, number: int, epoch: int, offsets: Sequence[int]) -> None: ...
    def trim(self, number: int, offset: int) -> None: ...
    def restart(self, number: int) -> None: ...


class Waiter(Protocol):
    """An ack whose caller waits until it is durable."""

    def durable(self) -> None: ...
    def undone(self, why: Unstored) -> None: ...


@dataclass
class Counts:
    """Counts what a stream has done so far."""

    received: int = 0
    redelivered: int = 0
    stale: int = 0
    commits: int = 0
    relocated: int = 0
    dead_lettered: int = 0
