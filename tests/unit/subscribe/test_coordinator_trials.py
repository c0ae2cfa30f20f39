"""The coordinator after a crash: trials of suspects, and what else may run beside them."""

from __future__ import annotations

import pytest

from kafka_pubsub.config import FlowControl
from kafka_pubsub.model import UNREAD, Committed
from kafka_pubsub.subscribe.coordinator import Coordinator
from kafka_pubsub.subscribe.formats import notes
from kafka_pubsub.subscribe.formats.notes import Doubt, Notes
from kafka_pubsub.subscribe.partition import crash_suspects as suspects
from kafka_pubsub.subscribe.partition.crash_suspects import TrialLock
from kafka_pubsub.subscribe.partition.events import LeaseOutcome, LeaseReport
from kafka_pubsub.subscribe.partition.settings import EVERYTHING, Found, LogStart, Rules
from tests.partition_ids import P
from tests.support import FakeBody
from tests.unit.subscribe.test_coordinator import Hands, Moving

NOTHING = Committed(0, "")


class AfterCrash:
    """A stream whose predecessor died while the first messages ran; the log takes every commit."""

    def __init__(self, max_messages: int, turn: TrialLock, partitions: int = 1, suspects: int = 1) -> None:
        self.worker_pool = Hands()
        rules = Rules(ordered=True, ack_deadline=10, max_extension=0)
        flow = FlowControl(max_messages=max_messages)
        self.coordinator = Coordinator(rules, flow, self.worker_pool, 7, lambda: 0.5, Moving(), turn)
        found = Notes(notes.as_runs(range(suspects)))
        home = LogStart(0, notes=found, doubt=Doubt(suspects, twice=True), end=EVERYTHING)
        stored = dict.fromkeys(P[:partitions], NOTHING)
        self.coordinator.assign(stored, lambda *_: Found("t", "id", home), 0.0, stored)
        for number in stored:
            self.coordinator.caught_up(number, UNREAD, 0.0)
        self.now = 0.0
        self.pass_time()

    def pass_time(self) -> None:
        self.now += 1.0
        self.coordinator.tick(self.now)
        sent = self.coordinator.take_commits()
        self.coordinator.answered(sent, dict.fromkeys(sent, True), self.now)
        self.coordinator.partitions.check()

    def fetch(self, *keys: bytes, partition: int = 0) -> None:
        records = [FakeBody(offset=at, key=key) for at, key in enumerate(keys)]
        self.coordinator.fetched({P[partition]: records}, self.now)

    def deliver(self) -> None:
        self.coordinator.deliver(self.now)

    def end(self, key: bytes) -> None:
        self.coordinator.released([LeaseReport(self.worker_pool.on(key), 1, LeaseOutcome.FINISHED)], self.now)

    @property
    def started(self) -> list[bytes | None]:
        return [lease.key for lease in self.worker_pool.leases]


def test_a_trial_takes_a_place_like_any_other_message() -> None:
    turn = TrialLock()
    assert turn.take("another stream")
    stream = AfterCrash(2, turn)
    stream.fetch(b"suspect", b"b", b"c", b"d", b"e")
    stream.deliver()
    stream.deliver()
    assert stream.started == [b"b", b"c"], "who waits for another's trial takes nobody's place"

    turn.give_back("another stream")
    stream.pass_time()
    assert stream.started == [b"b", b"c"], "its turn, but no place"
    assert stream.coordinator.wakeup_at() != 0.0, "it would spin until one is free"

    stream.end(b"b")
    stream.deliver()
    assert stream.started == [b"b", b"c"], "the next place is the suspect's"
    assert stream.coordinator.wakeup_at() == 0.0
    stream.pass_time()
    stream.deliver()
    assert stream.started == [b"b", b"c", b"suspect"]

    stream.end(b"c")
    stream.deliver()
    assert stream.started == [b"b", b"c", b"suspect", b"d"]


def test_with_one_place_suspects_and_others_take_turns() -> None:
    stream = AfterCrash(1, TrialLock())
    stream.fetch(b"suspect", b"b")
    stream.deliver()
    stream.deliver()
    assert stream.started == []
    stream.pass_time()
    stream.deliver()
    assert stream.started == [b"suspect"]
    stream.end(b"suspect")
    stream.deliver()
    assert stream.started == [b"suspect", b"b"]


@pytest.mark.parametrize("many", [0, 1])
def test_partitions_take_turns_with_their_suspects(many: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suspects, "ROW", 2)
    stream = AfterCrash(10, TrialLock(), partitions=2, suspects=4)
    stream.fetch(b"a", b"b", b"c", b"d", partition=many)
    stream.fetch(b"other", partition=1 - many)
    ended = 0
    for _ in range(6):
        stream.deliver()
        stream.pass_time()
        stream.deliver()
        for key in stream.started[ended:]:
            stream.end(key or b"")
        ended = len(stream.started)
    assert b"other" in stream.started[:3], "the partition with many suspects has every turn"


def test_the_end_of_a_trial_is_reported_at_once_when_a_neighbour_waits() -> None:
    stream = AfterCrash(10, TrialLock(), partitions=2)
    stream.fetch(b"first", partition=0)
    stream.fetch(b"second", partition=1)
    stream.deliver()
    stream.pass_time()
    (tried,) = stream.started
    stream.end(tried or b"")
    assert stream.coordinator.wakeup_at() == 0.0, "the neighbour would wait for the next tick"
    stream.pass_time()
    stream.pass_time()
    assert set(stream.started) == {b"first", b"second"}
