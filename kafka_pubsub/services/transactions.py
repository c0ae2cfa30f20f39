"""The thread on which a service's transactions run, one at a time.

Rules
1. After an ending that isn't known the caller gives this id up: what is committed is the truth once the log has fenced
   it (`ended`).
2. After one that wasn't stored, those that were sent behind it aren't begun, until the caller says `go_on`.
3. The thread ends with `close`; a transaction that is under way then is waited for. With `give_up` it ends by itself,
   once the log has ended what this id left open.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

from kafka_pubsub.log.ports import Backend
from kafka_pubsub.log.transaction_runner import TransactionRunner
from kafka_pubsub.model import Ending, Membership, NewRecord, Outcome, Positions

__all__ = ["ServiceTransactions"]

_log = logging.getLogger("kafka_pubsub.service")


class ServiceTransactions:
    """Writes transactions under one id."""

    def __init__(self, backend: Backend, transactional_id: str) -> None:
        self.id = transactional_id
        self._runner = TransactionRunner(partial(backend.transactions, transactional_id), _log)
        self._thread = ThreadPoolExecutor(1, "kafka_pubsub-service-transactions")
        self._ending = threading.Event()
        # Why nothing is written now.
        self._failed: Outcome | None = None
        self._is_ended = False

    def send(
        self,
        records: Sequence[NewRecord],
        positions: Positions,
        membership: Membership,
        *,
        careful: bool = False,
    ) -> Future[Outcome]:
        """Begins a transaction; `careful` (default False): a failure names the record, which costs more."""
        return self._thread.submit(self._transact, records, positions, membership, careful)

    def go_on(self) -> None:
        """Nothing that was sent is under way, and the caller has learned that something wasn't stored."""
        self._failed = None

    @property
    def ended(self) -> bool:
        """Whether the log has ended, after `give_up`, what this id left open."""
        return self._is_ended

    def give_up(self) -> None:
        """Ends in the background, when the log has ended what this id left open. Nothing is under way."""
        self._thread.submit(self._end_by_itself)
        self._thread.shutdown(wait=False)

    def hurry(self) -> None:
        """What can't be fenced at once isn't tried again: `close` follows."""
        self._ending.set()

    def close(self) -> None:
        """Ends after what was sent."""
        self.hurry()
        self._thread.shutdown(wait=True)
        self._runner.close()

    def _end_by_itself(self) -> None:
        self._runner.fence_until(self._ending)
        try:
            self._runner.close()
        except Exception:
            _log.exception("closing the writer %s failed", self.id)
        self._is_ended = True

    def _transact(
        self,
        records: Sequence[NewRecord],
        positions: Positions,
        membership: Membership,
        careful: bool = False,
    ) -> Outcome:
        if self._failed is not None:
            return Outcome(Ending.ABORTED, (), self._failed.reason)
        outcome = self._runner.transact(records, positions, membership, locate=careful)
        if outcome.ending is not Ending.STORED:
            self._failed = outcome
        return outcome
