"""Rules of metrics and spans, each taken out; a scene of `test_metrics_mutations.py` must notice each."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_pubsub.counters import PARTS, Part, Parts, Reading
from kafka_pubsub.errors import PermissionDenied
from kafka_pubsub.model import Message, TopicPartition
from kafka_pubsub.observe import kafka_view, logs, metrics, workers
from kafka_pubsub.observe.kafka_view import KafkaView
from kafka_pubsub.observe.logs import JsonFormatter
from kafka_pubsub.observe.tracing import _Tracing
from kafka_pubsub.subscribe.formats.record import FOREVER
from kafka_pubsub.subscribe.retry_topic import key_states
from kafka_pubsub.subscribe.retry_topic.key_states import Waiting
from kafka_pubsub.subscribe.retry_topic.open_transactions import OpenTransactions

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


def last_figures_lost(patch: Patch) -> None:
    """A process that ends leaves no figures."""

    def end(self: workers.Answering, *_: object) -> None:
        self._socket.close()

    patch.setattr(workers.Answering, "__exit__", end)


def ended_processes_forgotten(patch: Patch) -> None:
    """What ended processes had counted is in one scrape only."""
    read = workers.Sums.read

    def forgetful(self: workers.Sums) -> list[Reading]:
        self._past = []
        return read(self)

    patch.setattr(workers.Sums, "read", forgetful)


def no_process_asks_kafka(patch: Patch) -> None:
    """The first process of a run tells its own counts alone."""
    patch.setattr(metrics, "process_readings", lambda: PARTS.read)


def each_process_asks_kafka(patch: Patch) -> None:
    """The other processes of a run tell what Kafka knows, too."""
    read = metrics.process_readings()
    patch.setattr(workers, "PARTS", SimpleNamespace(read=read))


def one_question_at_a_time(patch: Patch) -> None:
    """A question that hangs holds up the others."""
    patch.setattr(kafka_view, "AT_ONCE", 1)


def hanging_question_asked_again(patch: Patch) -> None:
    """Each look asks once more what isn't answered yet."""
    look = KafkaView.look

    def forgetful(self: KafkaView) -> None:
        self._asked.clear()
        look(self)

    patch.setattr(KafkaView, "look", forgetful)


def refusal_told_for_each_subscription(patch: Patch) -> None:
    """A missing right is logged as often as it is met."""
    tell = KafkaView._tell_denied

    def forgetful(self: KafkaView, name: str, error: PermissionDenied) -> None:
        self._denied_at = None
        tell(self, name, error)

    patch.setattr(KafkaView, "_tell_denied", forgetful)


def transaction_without_partitions(patch: Patch) -> None:
    """A member whose partitions went to another one still tells of a transaction there."""
    look = OpenTransactions.look

    def forgetful(self: OpenTransactions, subscription: str, read: Mapping[TopicPartition, int]) -> None:
        if read:
            look(self, subscription, read)

    patch.setattr(OpenTransactions, "look", forgetful)


def parked_is_overdue(patch: Patch) -> None:
    """A message that waits for a person counts as overdue."""
    patch.setattr(key_states, "FOREVER", FOREVER * 2)


def running_retry_is_overdue(patch: Patch) -> None:
    """A message counts as overdue while its callback runs."""
    take = Waiting.__init__

    def begin(self: Waiting, *given: Any, alive: bool) -> None:
        take(self, *given, alive=alive)
        self._noted = frozenset()

    patch.setattr(Waiting, "__init__", begin)


def extra_wins(patch: Patch) -> None:
    """An extra of a record takes the place of the formatter's own field."""
    plain = JsonFormatter.format

    def format_record(self: JsonFormatter, record: logging.LogRecord) -> str:
        said = json.loads(plain(self, record))
        return json.dumps(
            {**said, **{name: value for name, value in vars(record).items() if name in said}}, default=str
        )

    patch.setattr(JsonFormatter, "format", format_record)


def extra_loses_its_line(patch: Patch) -> None:
    """An extra that can't be shown raises in the formatter."""
    patch.setattr(logs, "_text", repr)


#: Each with the scene that notices.
MUTATIONS: dict[Callable[[Patch], None], str] = {
    ended_part_forgotten: "ended",
    broken_part_ends_the_scrape: "broken",
    silent_worker_counts_nothing: "silent",
    answers_of_kafka_add_up: "workers",
    scrape_asks_kafka: "hanging",
    delivery_without_its_link: "link",
    first_delivery_forgotten: "redelivery",
    last_figures_lost: "never scraped",
    ended_processes_forgotten: "after the last scrape",
    no_process_asks_kafka: "the first asks",
    each_process_asks_kafka: "the others don't ask",
    one_question_at_a_time: "hanging question",
    hanging_question_asked_again: "hanging question",
    refusal_told_for_each_subscription: "refusal",
    transaction_without_partitions: "without partitions",
    parked_is_overdue: "parked",
    running_retry_is_overdue: "running retry",
    extra_wins: "extras",
    extra_loses_its_line: "odd extras",
}
