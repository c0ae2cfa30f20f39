"""Rules of metrics and spans, each taken out; a scene of `test_metrics_mutations.py` must notice each."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from kafka_pubsub.counters import Part, Parts, Reading
from kafka_pubsub.model import Message
from kafka_pubsub.observe import workers
from kafka_pubsub.observe.kafka_view import KafkaView
from kafka_pubsub.observe.tracing import _Tracing

__all__ = ["MUTATIONS", "Patch"]

Patch = pytest.MonkeyPatch


def ended_part_forgotten(patch: Patch) -> None:
    """What a part has counted goes with the part."""

    def end(self: Parts, part: Part) -> None:
        self._open.discard(part)

    patch.setattr(Parts, "end", end)


def broken_part_ends_the_scrape(patch: Patch) -> None:
    """A part that can't be read takes the others with it."""

    def read(self: Parts, part: Part) -> list[Reading]:
        return list(part.readings())

    patch.setattr(Parts, "_read", read)


def silent_worker_counts_nothing(patch: Patch) -> None:
    """The sums fall while a process doesn't answer."""
    read = workers.Sums.read

    def forgetful(self: workers.Sums) -> list[Reading]:
        self._last.clear()
        return read(self)

    patch.setattr(workers.Sums, "read", forgetful)


def answers_of_kafka_add_up(patch: Patch) -> None:
    """What each process tells alike is added up."""
    patch.setattr(workers, "HIGHEST", frozenset())


def scrape_asks_kafka(patch: Patch) -> None:
    """A scrape waits for Kafka's answers."""
    readings = KafkaView.readings

    def impatient(self: KafkaView) -> list[Reading]:
        self.look()
        return readings(self)

    patch.setattr(KafkaView, "readings", impatient)


def delivery_without_its_link(patch: Patch) -> None:
    """A delivery's span doesn't link to the message's."""

    def nothing(self: _Tracing, message: Message) -> None:
        return None

    patch.setattr(_Tracing, "_carried_by", nothing)


def first_delivery_forgotten(patch: Patch) -> None:
    """A redelivery's span doesn't link to the first."""

    def nothing(self: _Tracing, *_: Iterable[object]) -> None:
        return None

    patch.setattr(_Tracing, "_remember", nothing)


#: Each with the scene that notices.
MUTATIONS: dict[Callable[[Patch], None], str] = {
    ended_part_forgotten: "ended",
    broken_part_ends_the_scrape: "broken",
    silent_worker_counts_nothing: "silent",
    answers_of_kafka_add_up: "workers",
    scrape_asks_kafka: "hanging",
    delivery_without_its_link: "link",
    first_delivery_forgotten: "redelivery",
}
