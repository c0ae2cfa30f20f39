"""What a failure of a transactional writer means to those that write with it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

import pytest

from kafka_pubsub.errors import BrokerUnavailable, InvalidArgument, InvariantViolated
from kafka_pubsub.log import transaction_runner
from kafka_pubsub.log.ports import Transactions
from kafka_pubsub.log.transaction_runner import TransactionRunner
from kafka_pubsub.model import Ending, Membership, NewRecord, Outcome, Positions, PositionsLater


class Writer(Transactions):
    """A writer that raises `error` for each transaction, and fences at the `last` try."""

    def __init__(self, error: Exception | None = None, last: int = 1) -> None:
        self.unfenced: Exception = BrokerUnavailable("no broker answers")
        self.error, self.last, self.made, self.tries, self.closed = error, last, 0, 0, False

    @property
    def transactional_id(self) -> str:
        return "mine"

    def make(self) -> Transactions:
        self.made += 1
        return self

    def transact(
        self,
        records: Sequence[NewRecord],
        positions: Positions | PositionsLater,
        membership: Membership | None,
        *,
        locate: bool = True,
    ) -> Outcome:
        if self.error is not None:
            raise self.error
        return Outcome(Ending.STORED)

    def fence(self, transactional_id: str) -> None:
        assert transactional_id == "mine"
        self.tries += 1
        if self.tries < self.last:
            raise self.unfenced

    def close(self) -> None:
        self.closed = True


def runner_of(writer: Writer) -> TransactionRunner:
    return TransactionRunner(writer.make, logging.getLogger("kafka_pubsub.tests"))


def test_the_writer_is_made_once_and_only_when_it_is_needed() -> None:
    writer = Writer()
    runner = runner_of(writer)
    runner.close()
    assert (writer.made, writer.closed) == (0, False)
    assert [runner.transact((), {}, None).ending for _ in range(2)] == [Ending.STORED] * 2
    runner.close()
    assert (writer.made, writer.closed) == (1, True)


def test_what_no_log_could_take_is_aborted_and_after_a_bug_the_ending_is_unknown() -> None:
    refused = runner_of(Writer(InvalidArgument("partition: too high"))).transact((), {}, None)
    assert (refused.ending, type(refused.reason)) == (Ending.ABORTED, InvalidArgument)
    unknown = runner_of(Writer(KeyError("bug"))).transact((), {}, None)
    assert (unknown.ending, type(unknown.reason)) == (Ending.UNKNOWN, InvariantViolated)


def test_the_own_id_is_fenced_until_the_log_answers_or_the_end_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_runner, "_TRY_AGAIN", 0.0)
    writer, ending = Writer(last=3), threading.Event()
    runner_of(writer).fence_until(ending)
    assert writer.tries == 3
    ending.set()
    runner_of(writer).fence_until(ending)
    assert writer.tries == 3
    with pytest.raises(BrokerUnavailable):
        runner_of(Writer(last=2)).fence()


def test_the_own_id_is_fenced_again_after_an_error_of_ours(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(transaction_runner, "_TRY_AGAIN", 0.0)
    writer = Writer(last=3)
    writer.unfenced = KeyError("bug")
    with caplog.at_level(logging.WARNING, "kafka_pubsub.tests"):
        runner_of(writer).fence_until(threading.Event())
    assert writer.tries == 3
    assert [each.getMessage() for each in caplog.records] == [
        "the outcome of a transaction is still unknown: fencing failed: KeyError('bug'); please report this; "
        "trying again"
    ]
