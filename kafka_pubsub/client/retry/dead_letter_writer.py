"""Writes dead letters: a transactional writer and a thread of their own, which nothing else waits for.

Theory. A dead-letter topic may be away for hours: its partition has no leader, or too few replicas. A transaction that
writes to it then takes as long as the log's client waits, and its abort isn't over before the topic is back: until then
nothing can be written under the same transactional id. Therefore dead letters have an id of their own, and are written
before the core gives the positions that go with them: until then no commit of their partition has to wait for them.

Rules
1. One partition's dead letters are in a transaction; the next ones wait in line, and hold nothing up.
2. `written` tells once for each batch whether the log has taken it. If it has, the transaction stays open for up to
   `PATIENCE` seconds until `complete` brings the positions, and the checkpoint that tells of these letters: else the
   next owner would bury them again where the broker has forgotten the group's offsets. Then the outcome is told by
   `landed`, exactly once. Without positions it is aborted, and nothing more is said.
3. When the log doesn't take a batch and names no record, what was in line by then isn't tried: all of it would wait as
   long. The core tries it again after a pause.
4. After an unknown ending our own id is fenced, once: while the topic is away that can't succeed, and needn't. The next
   owner's question for what is committed isn't answered before the log has settled the positions, whatever becomes of
   the records.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from kafka_pubsub.client.retry.transaction_thread import (
    MoveRequest,
    MoveResult,
    TransactionThread,
    positions_of_all,
)
from kafka_pubsub.errors import PubSubError
from kafka_pubsub.model import Ending, Further
from kafka_pubsub.ports import Transactions

__all__ = ["PATIENCE", "DeadLetterWriter", "Written", "completed", "further"]

#: Seconds that written dead letters wait for their positions: some hundred times what the core takes, and less than
#: the broker lets a transaction stay open.
PATIENCE = 1.0


class Written(NamedTuple):
    """Whether the log has taken the dead letters of a request; if not, `refused`: those that it won't take, and why."""

    move_request: MoveRequest
    taken: bool
    refused: Mapping[int, PubSubError] = {}
    reason: PubSubError | None = None


class DeadLetterWriter(TransactionThread):
    """One transactional writer for dead letters. The positions of the move requests that it is sent are empty."""

    def __init__(
        self,
        transactions: Callable[[], Transactions],
        written: Callable[[Written], None],
        landed: Callable[[MoveResult], None],
        name: str = "kafka_pubsub-letters",
    ) -> None:
        super().__init__(transactions, landed, name)
        self._written = written
        self._changed = threading.Condition()
        # Written, and waits for its positions; with them, when they have come.
        self._asking: MoveRequest | None = None
        self._completed: MoveRequest | None = None
        self._closing = False
        # When a move request was sent, by partition and epoch; and when the log last took none.
        self._sent: dict[tuple[int, int], float] = {}
        self._failed_at = float("-inf")
        self._failure: PubSubError | None = None

    def send(self, move_request: MoveRequest) -> None:
        """Is written soon; any thread may call."""
        self._sent[move_request.partition, move_request.epoch] = time.monotonic()
        super().send(move_request)

    def complete(self, rest: MoveRequest) -> bool:
        """Brings the positions of what was written, and the records of a checkpoint that go with them.

        False: too late, it is aborted.
        """
        with self._changed:
            asking = self._asking
            if asking is None or (asking.partition, asking.epoch) != (rest.partition, rest.epoch):
                return False
            self._asking, self._completed = None, completed(asking, rest)
            self._changed.notify_all()
            return True

    def close(self, timeout: float) -> bool:
        """Ends soon: what isn't completed by now isn't written. False if that takes longer than `timeout` seconds."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        return super().close(timeout)

    # On its thread

    def _gather(self, first: MoveRequest) -> tuple[list[MoveRequest], None]:
        return [first], None  # rule 1

    def _fly_together(self, move_requests: list[MoveRequest]) -> None:  # type: ignore[override]
        (move_request,) = move_requests
        sent = self._sent.pop((move_request.partition, move_request.epoch), 0.0)
        if self._closing or sent <= self._failed_at:
            self._tell(Written(move_request, False, reason=self._failure))
            return
        asked = False

        def positions(_: Sequence[int]) -> Further | None:
            nonlocal asked
            asked = True
            return self._ask(move_request)

        outcome = self._transact(move_request.records, positions, move_request.membership)
        whole, self._completed = self._completed, None
        if whole is not None:
            if outcome.ending is Ending.UNKNOWN:
                self._fence_ourselves()
            offsets = outcome.offsets
            self._land(MoveResult(whole, outcome.ending, offsets, outcome.refused, outcome.reason))
        elif not asked:
            if not outcome.refused:
                self._failed_at, self._failure = time.monotonic(), outcome.reason
            self._tell(Written(move_request, False, outcome.refused, outcome.reason))

    def _ask(self, move_request: MoveRequest) -> Further | None:
        """Says that the log has taken the records, and waits for the positions (rule 2)."""
        with self._changed:
            self._asking = move_request
        self._tell(Written(move_request, True))
        with self._changed:
            self._changed.wait_for(lambda: self._closing or self._completed is not None, PATIENCE)
            self._asking = None
            return None if self._completed is None else further(move_request, self._completed)

    def _fence_ourselves(self) -> None:
        try:  # rule 4
            writer = self._writer()
            writer.fence(writer.transactional_id)
        except PubSubError as error:
            self._failure = error

    def _tell(self, written: Written) -> None:
        self._written(written)


def completed(letters: MoveRequest, rest: MoveRequest) -> MoveRequest:
    """Dead letters that are written, with the records and the positions that complete their transaction."""
    checkpoint = None if rest.checkpoint is None else len(letters.records) + rest.checkpoint
    return rest._replace(records=[*letters.records, *rest.records], checkpoint=checkpoint)


def further(letters: MoveRequest, whole: MoveRequest) -> Further:
    """What is still to be written and committed of a completed move request."""
    return Further(whole.records[len(letters.records) :], positions_of_all([whole]))
