"""The dead-letter topic of a round, as any Kafka client reads it: which message each dead letter was, and why."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import cast

from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, TopicPartition

from kafka_pubsub.history.history import fingerprint

__all__ = ["DeadLetter", "DeadLetterReader", "fingerprint_of", "texts_of"]

PREFIX = "ps-dead-"
#: Seconds of silence after which all that is there has been read: a fetch that finds nothing returns in half a second.
SILENCE = 2.0


@dataclass(frozen=True)
class DeadLetter:
    """A message that was given up. `origin` is its partition and offset at home."""

    origin: tuple[int, int]
    attempts: int
    reason: str
    sha: str


class DeadLetterReader:
    """Reads on at each look, committed records only."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": f"{topic}-morgue", "enable.auto.commit": False}
        )
        places = [TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(partitions)]
        self._consumer.assign(places)
        self.found: list[DeadLetter] = []

    def look(self, patience: float = 0.0) -> None:
        """Takes in what has come, until nothing has for so many seconds."""
        until = time.monotonic() + patience
        while True:
            message = self._consumer.poll(min(0.1, max(0.0, until - time.monotonic())))
            if message is not None and message.error() is None:
                self.found.append(_read(message))
            elif time.monotonic() >= until:
                return

    def close(self) -> None:
        """Lets go of the consumer."""
        self._consumer.close()


def _read(message: Message) -> DeadLetter:
    texts = texts_of(message)
    said = {name.removeprefix(PREFIX): text for name, text in texts.items() if name.startswith(PREFIX)}
    origin = int(said.get("partition", -1)), int(said.get("offset", -1))
    return DeadLetter(origin, int(said.get("attempts", 0)), said.get("reason", ""), fingerprint_of(message))


def fingerprint_of(message: Message) -> str:
    """The fingerprint of what its publisher gave."""
    attributes = {name: text for name, text in texts_of(message).items() if not name.startswith("ps-")}
    return fingerprint(message.key(), message.value() or b"", attributes)


def texts_of(message: Message) -> dict[str, str]:
    """The headers."""
    headers = cast("list[tuple[str, bytes]]", message.headers() or [])
    return {name: value.decode("utf-8", "replace") for name, value in headers}
