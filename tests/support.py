"""Small things that several test rooms share."""

from __future__ import annotations

import inspect
import threading
import time
from collections.abc import Callable, Mapping

from kafka_pubsub import options
from kafka_pubsub.errors import PubSubError
from kafka_pubsub.log.ports import LogReader
from kafka_pubsub.model import Committed, Header, TopicPartition

__all__ = ["FakeBody", "commit", "parameters", "until"]

#: Seconds; an upper bound for a slow machine, not an expectation.
PATIENCE = 60.0


def until(holds: Callable[[], object], what: str = "the condition", patience: float = PATIENCE) -> None:
    """Looks again and again at a condition; fails if it doesn't come true within `patience` seconds."""
    end = time.monotonic() + patience
    while not holds():
        assert time.monotonic() < end, f"{what} did not come true in {patience} seconds"
        threading.Event().wait(0.01)


def commit(
    reader: LogReader, positions: Mapping[TopicPartition, Committed]
) -> Mapping[TopicPartition, PubSubError | None]:
    """Commits and waits; empty if no answer comes in time."""
    answers: dict[TopicPartition, PubSubError | None] = {}
    reader.commit(positions, answers.update)
    reader.settle()
    return answers


def parameters(method: Callable[..., object]) -> set[str]:
    """Returns the names of a method's arguments, and of each option of a group (`Unpack`)."""
    names: set[str] = set()
    for name, parameter in inspect.signature(method).parameters.items():
        group = str(parameter.annotation).removeprefix("Unpack[").removesuffix("]")
        names |= (
            getattr(options, group).__optional_keys__ if parameter.kind is parameter.VAR_KEYWORD else {name}
        )
    return names


class FakeBody:
    """A record's body for core tests, where only its length counts."""

    def __init__(self, size: int = 1, offset: int = 0, key: bytes | None = None) -> None:
        self._size, self._offset, self._key = size, offset, key

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self._offset

    def key(self) -> bytes | None:
        return self._key

    def value(self) -> bytes:
        return b"x" * self._size

    def headers(self) -> list[Header] | None:
        return None

    def timestamp(self) -> tuple[int, int]:
        return (0, 0)

    def leader_epoch(self) -> int | None:
        return None

    def __len__(self) -> int:
        return self._size
