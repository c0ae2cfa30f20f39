"""The calls of a transaction: their order, and that a call which never returns costs only the producer."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any, cast

import pytest

from kafka_pubsub.log.kafka import transactions
from kafka_pubsub.log.kafka.client_factory import ClientFactory
from kafka_pubsub.log.kafka.transactions import KafkaTransactions
from kafka_pubsub.log.ports import Admin
from kafka_pubsub.model import Committed, Ending, Membership, NewRecord, TopicPartition

#: A place in a group with generation 1, as librdkafka writes it.
MEMBERSHIP = Membership("g", b"CGMDv2:" + (1).to_bytes(4, "little") + b"g\0member\0\0")
RECORDS = [NewRecord("retry", 0, b"k", b"v", [], 0)]
POSITIONS = {TopicPartition("t", 0): Committed(1, "")}


class Stored:
    """A delivery report."""

    def offset(self) -> int:
        return 7


class Scripted:
    """A transactional producer of which some calls never return."""

    def __init__(self, stuck: str, never: threading.Event) -> None:
        self._stuck, self._never = stuck, never
        self._reports: list[Any] = []
        self.called: list[str] = []

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: object) -> None:
            self.called.append(name)
            if name == self._stuck:
                self._never.wait()
            if name == "produce":
                self._reports.append(arguments[4])
            if name == "poll":
                while self._reports:
                    self._reports.pop()(None, Stored())

        return call


class Producers:
    """Makes scripted producers; the first is stuck, later ones aren't."""

    address = "nowhere"

    def __init__(self, stuck: str) -> None:
        self._stuck = stuck
        self.never = threading.Event()
        self.made: list[Scripted] = []
        self.discarded: list[Scripted] = []

    def check(self) -> None: ...

    def producer(self, *arguments: object) -> Scripted:
        self.made.append(Scripted(self._stuck if not self.made else "", self.never))
        return self.made[-1]

    def init_transactions(self, producer: Scripted, seconds: float) -> None:
        producer.init_transactions(seconds)

    def discard(self, producer: Scripted) -> None:
        self.discarded.append(producer)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_DEADLINE", "_ABORT_S", "_START_S", "_STUCK_S", "_OFFSETS_S"):
        monkeypatch.setattr(transactions, name, 0.05)


@pytest.fixture
def producers(request: pytest.FixtureRequest) -> Iterator[Producers]:
    producers = Producers(request.param)
    yield producers
    producers.never.set()


@pytest.mark.parametrize(
    ("producers", "ending"),
    [
        ("send_offsets_to_transaction", Ending.ABORTED),
        ("init_transactions", Ending.ABORTED),
        ("commit_transaction", Ending.UNKNOWN),
    ],
    indirect=["producers"],
)
def test_what_is_stuck_is_left_behind_and_the_next_transaction_has_a_producer_of_its_own(
    producers: Producers, ending: Ending
) -> None:
    writer = KafkaTransactions(cast("ClientFactory", producers), cast("Admin", None), "id")
    assert writer.transact(RECORDS, POSITIONS, MEMBERSHIP).ending is ending
    first = producers.made[0]
    assert producers.discarded == [first]
    assert "abort_transaction" not in first.called, "it must not be touched while a call is under way"
    outcome = writer.transact(RECORDS, POSITIONS, MEMBERSHIP)
    assert (outcome.ending, outcome.offsets) == (Ending.STORED, (7,))
    assert len(producers.made) == 2


@pytest.mark.parametrize("producers", [""], indirect=True)
def test_positions_that_are_known_go_before_the_records_and_later_ones_after_them(
    producers: Producers,
) -> None:
    writer = KafkaTransactions(cast("ClientFactory", producers), cast("Admin", None), "id")
    writer.transact(RECORDS, POSITIONS, MEMBERSHIP)
    writer.transact(RECORDS, lambda offsets: POSITIONS, MEMBERSHIP)
    [made] = producers.made
    calls = [name for name in made.called if name in ("produce", "send_offsets_to_transaction")]
    assert calls == ["send_offsets_to_transaction", "produce", "produce", "send_offsets_to_transaction"]
