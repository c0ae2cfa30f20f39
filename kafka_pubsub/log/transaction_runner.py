"""A transactional writer, made at its first transaction, and the meaning of its failures.

Rules
1. `transact` raises nothing: records that no log could take are aborted, and after an error of ours the ending isn't
   known.
2. After an unknown ending the own id is fenced before the ending is reported: then the committed positions are final,
   and a reader that asks for them doesn't wait for this writer.
3. All calls come from the same thread.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from kafka_pubsub.errors import InvariantViolated, PubSubError
from kafka_pubsub.log.ports import Transactions
from kafka_pubsub.log.trouble_log import TroubleLog
from kafka_pubsub.model import Ending, Membership, NewRecord, Outcome, Positions, PositionsLater

__all__ = ["TransactionRunner"]

#: Seconds between two tries to fence the own id while the log doesn't answer.
_TRY_AGAIN = 1.0


class TransactionRunner:
    """Runs the transactions of an id, in turn."""

    def __init__(self, make: Callable[[], Transactions], log: logging.Logger) -> None:
        self._make, self._log = make, log
        self._troubles = TroubleLog(log)
        # None: not needed yet.
        self._writer: Transactions | None = None

    @property
    def writer(self) -> Transactions:
        """The writer."""
        if self._writer is None:
            self._writer = self._make()
        return self._writer

    def transact(
        self,
        records: Sequence[NewRecord],
        positions: Positions | PositionsLater,
        membership: Membership | None,
        *,
        locate: bool = True,
    ) -> Outcome:
        """Stores all or nothing, as `Transactions.transact` does; never raises."""
        try:
            return self.writer.transact(records, positions, membership, locate=locate)
        except PubSubError as error:  # no log could take the records
            return Outcome(Ending.ABORTED, (), error)
        except Exception as error:
            self._log.exception("a transaction of %d records failed", len(records))
            return Outcome(Ending.UNKNOWN, (), _reported("a transaction", error))

    def fence(self) -> None:
        """Fences the own id; raises if the log doesn't answer."""
        self.writer.fence(self.writer.transactional_id)

    def fence_until(self, ending: threading.Event) -> None:
        """Fences the own id, again and again until the log answers, or `ending` is set."""
        while not ending.is_set():
            try:
                self.fence()
                return
            except Exception as error:
                text = "the outcome of a transaction is still unknown: %s; trying again"
                told = error if isinstance(error, PubSubError) else _reported("fencing", error)
                self._troubles.tell(told, text, told)
                ending.wait(_TRY_AGAIN)

    def close(self) -> None:
        """Closes the writer, if any."""
        if self._writer is not None:
            self._writer.close()


def _reported(doing: str, error: Exception) -> InvariantViolated:
    return InvariantViolated(f"{doing} failed: {error!r}; please report this")
