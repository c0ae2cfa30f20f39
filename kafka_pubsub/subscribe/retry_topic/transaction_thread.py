"""Writes messages that move to the retry topic, in Kafka transactions (dead letters: `dead_letter_writer`).

A core decides one partition's next move: the records to write, and the commits of the home and retry partitions that
finish their sources. A transaction costs some milliseconds whatever its size, so moves of all partitions that come
within a few milliseconds share one. The writer waits for the log, so it has a thread of its own.

Rules
1. A partition has one move request at a time (its core ensures this). A move request is stored whole or not at all,
   and `move_answered` gets its result exactly once.
2. If a transaction was aborted because the log refuses a record, the move requests without such a record are sent
   again at once. The results of the others name the refused records.
3. After an unknown ending the writer fences its own id before it reports the result. From then on the committed
   positions are final, and a reader that asks for them doesn't wait for this writer.
4. A move request of an assignment that is over ends as aborted; it is never sent under a newer membership.
5. When an abort of several move requests names no record, each is sent alone for `ALONE` seconds: one of them may
   make each of its transactions fail, and must not hold up the others.
6. A move request with a result isn't kept in memory while the thread waits: it may be megabytes.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from queue import Empty
from typing import NamedTuple

from kafka_pubsub.errors import FailedPrecondition, PubSubError
from kafka_pubsub.log.ports import Transactions
from kafka_pubsub.log.threads import ThreadedQueue
from kafka_pubsub.log.transaction_runner import TransactionRunner
from kafka_pubsub.model import (
    Ending,
    Membership,
    NewRecord,
    Positions,
    PositionsLater,
    TopicPartition,
)
from kafka_pubsub.partition_id import PartitionId

__all__ = ["MoveRequest", "MoveResult", "TransactionThread", "positions_of_all"]

log = logging.getLogger("kafka_pubsub.subscriber")

#: Seconds that a transaction waits for further move requests: a tenth of the shortest backoff, and enough for the
#: other partitions of the same sweep.
GATHER = 0.003
#: Records and bytes at which a transaction takes no further move request. A broker takes more in well under a second,
#: but the log's client copies all of it, and a burst shouldn't cost its size in memory once more.
MOST_RECORDS = 5000
MOST_BYTES = 4 * 1024 * 1024
#: Seconds: somewhat more than a partition's longest wait before it sends an aborted move request again.
ALONE = 10.0


class MoveRequest(NamedTuple):
    """The records that one partition moves, and the positions that are committed with them.

    If `records` hold a checkpoint, it begins at index `checkpoint`, and `named` makes the positions from its offset.
    """

    partition: PartitionId
    epoch: int
    records: Sequence[NewRecord]
    positions: Positions
    membership: Membership
    checkpoint: int | None = None
    named: Callable[[int], Positions] | None = None


class MoveResult(NamedTuple):
    """How a request ended: the `offsets` of its records if it was stored, else the records that the log refused."""

    move_request: MoveRequest
    ending: Ending
    offsets: Sequence[int] = ()
    refused: Mapping[int, PubSubError] = {}
    reason: PubSubError | None = None

    @property
    def checkpoint(self) -> int | None:
        """The offset of the request's checkpoint; None: the request had none, or it wasn't stored."""
        at = self.move_request.checkpoint
        return None if at is None or at >= len(self.offsets) else self.offsets[at]

    def last_in(self, place: TopicPartition) -> int | None:
        """Returns the last offset that the request's records have in this partition; None: none is stored there."""
        if self.ending is not Ending.STORED:
            return None
        stored = zip(self.move_request.records, self.offsets, strict=False)
        return max((at for record, at in stored if record[:2] == place), default=None)


class TransactionThread:
    """One transactional writer and its thread, which starts with the first move request."""

    def __init__(
        self,
        transactions: Callable[[], Transactions],
        move_answered: Callable[[MoveResult], None],
        name: str = "kafka_pubsub-mover",
    ) -> None:
        self._runner = TransactionRunner(transactions, log)
        self._move_answered = move_answered
        self._move_requests: ThreadedQueue[MoveRequest | Callable[[Transactions], None]] = ThreadedQueue(
            self._work, name
        )
        self._ending = threading.Event()
        # Until this time each move request is sent alone (rule 5).
        self._alone_until = 0.0

    def send(self, move_request: MoveRequest) -> None:
        """Queues a move request; any thread may call."""
        self._move_requests.put(move_request)

    def fence(self, transactional_id: str, timeout: float) -> None:
        """Ends the transaction that a dead owner left open under its id; raises if that takes too long."""
        try:
            self.begin_fence(transactional_id).result(timeout)
        except TimeoutError:
            raise FailedPrecondition(
                f"transactional id {transactional_id!r} wasn't fenced within {timeout} s"
            ) from None

    def begin_fence(self, transactional_id: str) -> Future[None]:
        """Queues the same work as `fence` and returns at once."""
        fenced: Future[None] = Future()

        def fence(transactions: Transactions) -> None:
            try:
                transactions.fence(transactional_id)
            except BaseException as error:
                fenced.set_exception(error)
            else:
                fenced.set_result(None)

        self._move_requests.put(fence)
        return fenced

    def close(self, timeout: float) -> bool:
        """Ends the thread after the results of all sent requests; False if that takes longer than `timeout` seconds."""
        ended = self._move_requests.close(timeout)
        self._ending.set()
        return ended

    # On the mover's thread

    def _work(self) -> None:
        try:
            while self._serve_next():
                pass
        finally:
            self._runner.close()

    def _serve_next(self) -> bool:
        """Serves the next item; False: there are no more. A separate method, so its locals are freed (rule 6)."""
        first = self._move_requests.get()
        if first is None:
            return False
        if not isinstance(first, MoveRequest):
            first(self._runner.writer)
            return True
        move_requests, then = self._gather(first)
        self._move_all(move_requests)
        if then is not None and then is not _END:
            then(self._runner.writer)
        return then is not _END

    def _gather(self, first: MoveRequest) -> tuple[list[MoveRequest], Callable[[Transactions], None] | None]:
        """Collects the move requests of one transaction, and the item that is to be served after them."""
        move_requests, count, size = [first], len(first.records), _size(first)
        until = time.monotonic() + GATHER
        while count < MOST_RECORDS and size < MOST_BYTES and time.monotonic() >= self._alone_until:
            try:
                item = self._move_requests.get(timeout=max(0.0, until - time.monotonic()))
            except Empty:
                break
            if not isinstance(item, MoveRequest):
                return move_requests, _END if item is None else item
            move_requests.append(item)
            count, size = count + len(item.records), size + _size(item)
        return move_requests, None

    def _move_all(self, move_requests: Sequence[MoveRequest]) -> None:
        """Runs one transaction for each membership; there is more than one only during a rebalance."""
        while move_requests:
            membership = move_requests[0].membership
            together = [
                move_request for move_request in move_requests if move_request.membership == membership
            ]
            move_requests = [
                move_request for move_request in move_requests if move_request.membership != membership
            ]
            self._move_together(together)

    def _move_together(self, move_requests: Sequence[MoveRequest]) -> None:
        records = [record for move_request in move_requests for record in move_request.records]
        outcome = self._runner.transact(records, positions_of_all(move_requests), move_requests[0].membership)
        if outcome.ending is Ending.ABORTED and len(move_requests) > 1 and not outcome.refused:
            self._alone_until = time.monotonic() + ALONE
        if outcome.ending is Ending.UNKNOWN:
            self._runner.fence_until(self._ending)
        refused = _by_move_request(move_requests, outcome.refused)
        at = 0
        again: list[MoveRequest] = []
        for number, move_request in enumerate(move_requests):
            offsets = outcome.offsets[at : at + len(move_request.records)]
            at += len(move_request.records)
            if refused and number not in refused:
                again.append(move_request)
            else:
                self._answer_move(
                    MoveResult(move_request, outcome.ending, offsets, refused.get(number, {}), outcome.reason)
                )
        if again:
            self._move_together(again)

    def _answer_move(self, move_result: MoveResult) -> None:
        try:
            self._move_answered(move_result)
        except Exception:
            log.exception("move result of partition %s failed", move_result.move_request.partition)


def _end(_: Transactions) -> None:
    """Marks the end of the queue."""


_END: Callable[[Transactions], None] = _end


def _size(move_request: MoveRequest) -> int:
    return sum(len(record.value or b"") for record in move_request.records)


def positions_of_all(move_requests: Sequence[MoveRequest]) -> Positions | PositionsLater:
    """Returns the positions that one transaction of these move requests commits."""
    positions = {place: to for move_request in move_requests for place, to in move_request.positions.items()}
    if all(move_request.named is None for move_request in move_requests):
        return positions

    def named(offsets: Sequence[int]) -> Positions:
        found, at = dict(positions), 0
        for move_request in move_requests:
            if move_request.named is not None and move_request.checkpoint is not None:
                found |= move_request.named(offsets[at + move_request.checkpoint])
            at += len(move_request.records)
        return found

    return named


def _by_move_request(
    move_requests: Sequence[MoveRequest], refused: Mapping[int, PubSubError]
) -> dict[int, dict[int, PubSubError]]:
    """Groups refused records by the index of their move request, and by their index in it."""
    found: dict[int, dict[int, PubSubError]] = {}
    if refused:
        at = 0
        for number, move_request in enumerate(move_requests):
            mine = {i: refused[at + i] for i in range(len(move_request.records)) if at + i in refused}
            if mine:
                found[number] = mine
            at += len(move_request.records)
    return found
