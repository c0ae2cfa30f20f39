"""The books of a world with a retry topic, about messages that main has lost."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kafka_pubsub.log.memory import MemoryBackend
from kafka_pubsub.model import Committed, Run, TopicPartition
from kafka_pubsub.subscribe.formats import ack_map
from kafka_pubsub.subscribe.formats.ack_map import AckMap
from kafka_pubsub.subscribe.formats.checkpoint import Named
from kafka_pubsub.subscribe.formats.record import RetryInfo, retry_headers
from tests.checkpoints import write
from tests.simulation.retry_ledger import DEAD, RETRY, RetryLedger
from tests.simulation.trouble import GROUP, TOPIC


class Books:
    """A ledger over three messages of main, 0 to 2, of a key."""

    def __init__(self) -> None:
        self.backend = MemoryBackend()
        self.cluster = self.backend.cluster
        for topic in (TOPIC, RETRY, DEAD):
            self.backend.admin.create_topic(topic, 1, None, {})
        self.ledger = RetryLedger(1, ordered=True, cluster=self.cluster, group=GROUP, attempts=5)
        self.ledger.opens()
        self.ledger.subscribed(0, 0)
        for offset in range(3):
            self.cluster.append(TOPIC, 0, b"", b"a")
            self.ledger.published(0, offset, b"a")

    def relocate(self, origin: int, transaction: str | None = None) -> None:
        """The message goes to the retry topic."""
        headers = retry_headers(None, RetryInfo("id", 0, origin, attempt=2))
        self.cluster.append(RETRY, 0, b"", b"a", headers, transaction=transaction)

    def store_dead_letter(self, origin: int) -> None:
        """The message becomes a dead letter."""
        said = {"partition": 0, "offset": origin, "attempts": 5, "crashes": 5}
        headers = [(f"ps-dead-{name}", str(value).encode()) for name, value in said.items()]
        self.ledger.bodies[0][origin] = (b"", None)
        self.cluster.append(DEAD, 0, b"", b"a", headers)

    def checkpoint(self, *runs: Run, main: Sequence[Run] = (), transaction: str | None = None) -> Named:
        """A checkpoint is written."""
        return write(self.cluster, RETRY, *runs, main=main, transaction=transaction)

    def commit(self, main: int, retry: int, *runs: Run, named: Named | None = None) -> None:
        """The group stores these positions, and of the retry partition the finished offsets above."""
        said = (
            ack_map.encode(AckMap(0, runs, checkpoint=named, more=named is not None), retry)
            if runs or named
            else ""
        )
        home = ack_map.encode(AckMap(0, (), checkpoint=named, more=True), main) if named else ""
        positions = {
            TopicPartition(TOPIC, 0): Committed(main, home),
            TopicPartition(RETRY, 0): Committed(retry, said),
        }
        with self.cluster.change():
            for place, stored in positions.items():
                assert self.cluster.group(GROUP).store(place, stored) is None
        self.ledger.look()


@pytest.fixture
def finished_runs() -> Books:
    return Books()


def test_what_waits_in_the_retry_topic_is_not_gone(finished_runs: Books) -> None:
    finished_runs.relocate(0)
    finished_runs.commit(1, 0)
    finished_runs.ledger.taken_out(0, [0, 1])
    assert finished_runs.ledger.logs[0].gone == {1}
    assert finished_runs.ledger.unsettled(0) == {0, 2}
    assert not finished_runs.ledger.is_over(0, 0)


def test_what_was_on_its_way_there_is_not_gone_once_it_has_arrived(finished_runs: Books) -> None:
    finished_runs.relocate(0, "t")
    finished_runs.ledger.taken_out(0, [0, 1])
    assert finished_runs.ledger.unsettled(0) == {2}, "nobody can say yet whether it will be there"
    finished_runs.cluster.finish_transaction(RETRY, 0, "t", True)
    finished_runs.commit(1, 0)
    assert finished_runs.ledger.unsettled(0) == {0, 2}


def test_what_was_aborted_on_its_way_there_stays_gone(finished_runs: Books) -> None:
    finished_runs.relocate(0, "t")
    finished_runs.ledger.taken_out(0, [0, 1])
    finished_runs.cluster.finish_transaction(RETRY, 0, "t", False)
    finished_runs.commit(0, 0)
    assert finished_runs.ledger.unsettled(0) == {2}


def test_it_may_not_be_called_finished_unless_it_was_acked(finished_runs: Books) -> None:
    finished_runs.relocate(0)
    finished_runs.commit(1, 0)
    finished_runs.ledger.taken_out(0, [0])
    with pytest.raises(AssertionError, match=r"claims: \[0\] of 0 are called finished"):
        finished_runs.commit(1, 1)


def test_a_transaction_that_was_left_open_hides_what_lies_behind_it(finished_runs: Books) -> None:
    finished_runs.cluster.append(DEAD, 0, b"", b"a", transaction="t")
    finished_runs.cluster.append(DEAD, 0, b"", b"a")
    assert finished_runs.ledger.hides()
    finished_runs.cluster.finish_transaction(DEAD, 0, "t", False)
    assert not finished_runs.ledger.hides()
    finished_runs.relocate(0, "t")
    assert finished_runs.ledger.hides()


def test_a_checkpoint_calls_finished_what_it_reports(finished_runs: Books) -> None:
    for origin in range(3):
        finished_runs.relocate(origin)
    named = finished_runs.checkpoint((1, 2))
    finished_runs.ledger.logs[0].acked = {1, 2}
    finished_runs.commit(3, 0, named=named)
    assert finished_runs.ledger.unsettled(0) == {0, 2}
    finished_runs.commit(3, 0, (2, 3), named=named)
    assert finished_runs.ledger.unsettled(0) == {0}
    with pytest.raises(AssertionError, match=r"claims: \[1\] of 0 were finished and aren't now"):
        finished_runs.commit(3, 0, (2, 3))


def test_it_reports_of_main_too(finished_runs: Books) -> None:
    finished_runs.ledger.logs[0].acked = {1}
    finished_runs.commit(0, 0, named=finished_runs.checkpoint(main=[(1, 2)]))
    assert finished_runs.ledger.unsettled(0) == {0, 2}
    assert finished_runs.ledger.knows(0, 1)


def test_a_checkpoint_is_neither_a_message_nor_rubbish(finished_runs: Books) -> None:
    finished_runs.checkpoint()
    finished_runs.commit(0, 0)
    assert not finished_runs.ledger.stays()
    assert list(finished_runs.ledger.beside[0].waiting(Committed(0, ""), ())) == []
    finished_runs.ledger.check_rubbish(0)


def test_a_checkpoint_that_cannot_be_read_may_not_be_named(finished_runs: Books) -> None:
    named = finished_runs.checkpoint((1, 2), transaction="t")
    with pytest.raises(AssertionError, match=r"checkpoint: Named.* is named, and can't be read"):
        finished_runs.commit(0, 0, named=named)


def test_a_message_may_not_be_named_as_a_checkpoint(finished_runs: Books) -> None:
    finished_runs.relocate(0)
    with pytest.raises(AssertionError, match=r"checkpoint: Named.* is named, and isn't whole"):
        finished_runs.commit(1, 0, named=Named(0, 5))


def test_a_checkpoint_that_was_deleted_may_not_be_named(finished_runs: Books) -> None:
    named = finished_runs.checkpoint()
    finished_runs.commit(0, 0, named=named)
    finished_runs.checkpoint()
    finished_runs.cluster.truncate(RETRY, 0, 1)
    with pytest.raises(AssertionError, match=r"checkpoint: Named.* is named, and was deleted"):
        finished_runs.commit(0, 1, named=named)


def test_a_dead_letter_behind_an_open_transaction_counts(finished_runs: Books) -> None:
    finished_runs.cluster.append(DEAD, 0, b"", b"a", transaction="t")
    finished_runs.store_dead_letter(0)
    finished_runs.commit(1, 0)
    assert finished_runs.ledger.unsettled(0) == {1, 2}
    finished_runs.cluster.finish_transaction(DEAD, 0, "t", True)
    finished_runs.commit(1, 0)
    assert finished_runs.ledger.beside[0].dead == {0}, "it is read once"
