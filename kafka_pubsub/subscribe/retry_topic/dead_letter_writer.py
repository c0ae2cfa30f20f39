"""Writes dead letters, with a transactional id and a thread of their own, so that no other request waits for them.

A dead-letter topic may be away for hours: its partition has no leader, or too few replicas. A transaction that writes
to it then lasts until the log's client times out, and its abort ends only when the topic is back. Until then nothing
can be written under the same transactional id. So dead letters have an id of their own, and are written before the
core gives the positions that go with them: no commit of their partition has to wait while they are being written.

Rules
1. A transaction holds the dead letters of one partition. Those of other partitions queue, and hold up nothing else.
2. `written` reports once for each batch whether the log has taken it. If it has, the transaction stays open for up to
   `PATIENCE` seconds until `complete` brings the positions and the checkpoint that records these dead letters: without
   it the next owner would dead-letter them again if the broker has forgotten the group's offsets. Then `landed` gets
   the result, exactly once. Without positions the transaction is aborted, and nothing more is reported.
3. When the log doesn't take a batch and names no record, the batches that are queued by then aren't tried: each would
   wait as long. The core tries them again after a pause.
4. After an unknown ending the writer fences its own id once. While the topic is away this can't succeed, and needn't:
   the log answers the next owner's request for committed positions only when it has settled them, whatever happens
   to the records.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from kafka_pubsub.errors import PubSubError
from kafka_pubsub.log.ports import Transactions
from kafka_pubsub.model import Ending, Further
from kafka_pubsub.partition_id import PartitionId
from kafka_pubsub.subscribe.retry_topic.transaction_thread import (
    MoveRequest,
    MoveResult,
    TransactionThread,
    positions_of_all,
)

__all__ = ["PATIENCE", "DeadLetterWriter", "Written", "completed", "further"]

#: Seconds that written dead letters wait for their positions: some hundred times what the core takes, and less than
#: the broker lets a transaction stay open.
PATIENCE = 1.0


class Written(NamedTuple):
    """Whether the log has taken the dead letters of a request; if not, `refused`: those that it refuses, and why."""

    move_request: MoveRequest
    taken: bool
    refused: Mapping[int, PubSubError] = {}
    reason: PubSubError | None = None


class DeadLetterWriter(TransactionThread):
    """One transactional writer for dead letters. The move requests sent to it have no positions."""

    def __init__(
        self,
        transactions: Callable[[], Transactions],
        written: Callable[[Written], None],
        move_answered: Callable[[MoveResult], None],
        name: str = "kafka_pubsub-letters",
    ) -> None:
        super().__init__(transactions, move_answered, name)
        self._written = written
        self._changed = threading.Condition()
        # The request that is written and lacks its positions; and the same request with them.
        self._asking: MoveRequest | None = None
        self._completed: MoveRequest | None = None
        self._closing = False
        # When each move request was sent, by partition and epoch; and when the log last failed to take one.
        self._sent: dict[tuple[PartitionId, int], float] = {}
        self._failed_at = float("-inf")
        self._failure: PubSubError | None = None

    def send(self, move_request: MoveRequest) -> None:
        """Queues dead letters; any thread may call."""
        self._sent[move_request.partition, move_request.epoch] = time.monotonic()
        super().send(move_request)

    def complete(self, rest: MoveRequest) -> bool:
        """Gives the transaction of written dead letters its positions and its checkpoint's records.

        Returns False if this is too late: the transaction is aborted.
        """
        with self._changed:
            asking = self._asking
            if asking is None or (asking.partition, asking.epoch) != (rest.partition, rest.epoch):
                return False
            self._asking, self._completed = None, completed(asking, rest)
            self._changed.notify_all()
            return True

    def close(self, timeout: float) -> bool:
        """Ends the thread; requests that aren't completed yet are aborted. False if `timeout` seconds don't suffice."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        return super().close(timeout)

    # On its thread

    def _gather(self, first: MoveRequest) -> tuple[list[MoveRequest], None]:
        return [first], None  # rule 1

    def _move_together(self, move_requests: list[MoveRequest]) -> None:  # type: ignore[override]
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

        outcome = self._runner.transact(move_request.records, positions, move_request.membership)
        whole, self._completed = self._completed, None
        if whole is not None:
            if outcome.ending is Ending.UNKNOWN:
                self._fence_once()
            offsets = outcome.offsets
            self._answer_move(MoveResult(whole, outcome.ending, offsets, outcome.refused, outcome.reason))
        elif not asked:
            if not outcome.refused:
                self._failed_at, self._failure = time.monotonic(), outcome.reason
            self._tell(Written(move_request, False, outcome.refused, outcome.reason))

    def _ask(self, move_request: MoveRequest) -> Further | None:
        """Reports that the log has taken the records, and waits for the positions (rule 2)."""
        with self._changed:
            self._asking = move_request
        self._tell(Written(move_request, True))
        with self._changed:
            self._changed.wait_for(lambda: self._closing or self._completed is not None, PATIENCE)
            self._asking = None
            return None if self._completed is None else further(move_request, self._completed)

    def _fence_once(self) -> None:
        try:  # rule 4
            self._runner.fence()
        except PubSubError as error:
            self._failure = error

    def _tell(self, written: Written) -> None:
        self._written(written)


def completed(dead_letters: MoveRequest, rest: MoveRequest) -> MoveRequest:
    """Joins written dead letters with the records and the positions that complete their transaction."""
    checkpoint = None if rest.checkpoint is None else len(dead_letters.records) + rest.checkpoint
    return rest._replace(records=[*dead_letters.records, *rest.records], checkpoint=checkpoint)


def further(dead_letters: MoveRequest, whole: MoveRequest) -> Further:
    """Returns the records and positions of a completed request that its transaction still lacks."""
    return Further(whole.records[len(dead_letters.records) :], positions_of_all([whole]))
