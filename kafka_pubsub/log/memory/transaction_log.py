"""The transaction coordinator: which writer may use an id, which transactions are open, and when readers see them.

Theory. A transaction ends in two steps, as on a broker. First the coordinator decides, and answers; then a marker goes
to every partition and group that took part, to each at its own time. In between readers don't see the whole
transaction: a log's last stable offset is below committed records, and a group's positions become visible before or
after the records.

Rules
1. A writer that starts under an id ends the open transaction of the id (as decided, or else by an abort), markers
   included, and fences every earlier writer. The next transaction of the same writer also ends its own last one.
2. A transaction that stays open is aborted, and its writer fenced, at the first check after its time-out; the
   coordinator checks every 10 s.
3. All methods are called under the cluster's lock.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

from kafka_pubsub.errors import FailedPrecondition
from kafka_pubsub.log.memory.schedule import Later
from kafka_pubsub.model import TopicPartition

__all__ = ["Target", "Transaction", "TransactionLog"]

#: Seconds after which the coordinator ends a transaction that its writer doesn't end, as Kafka's adapter sets it.
TIMEOUT = 10.0

#: Seconds between two checks for those (`transaction.abort.timed.out.transaction.cleanup.interval.ms`).
_LOOK_EVERY = 10.0

#: A partition, or a group by its name.
Target = TopicPartition | str
Mark = Callable[[str, Target, bool], None]


class Transaction:
    """A transaction that has begun and whose end isn't visible everywhere yet."""

    __slots__ = ("committed", "epoch", "id", "name", "targets")

    def __init__(self, transactional_id: str, epoch: int, name: str) -> None:
        self.id = transactional_id
        self.epoch = epoch
        #: The number of this transaction; the id stays the same for many.
        self.name = name
        #: None: the coordinator hasn't decided.
        self.committed: bool | None = None
        # The partitions and groups that need a marker, in the order in which they joined.
        self.targets: dict[Target, None] = {}


class TransactionLog:
    """All transactions of a cluster."""

    def __init__(self, later: Later, mark: Mark) -> None:
        self._later = later
        self._mark = mark
        # The id's present writer, by its rising epoch.
        self._epochs: dict[str, int] = {}
        # The id's transaction whose end isn't visible everywhere yet.
        self._open: dict[str, Transaction] = {}
        self._begun = 0

    def start(self, transactional_id: str) -> int:
        """Starts a writer; returns the epoch under which it writes."""
        left = self._open.get(transactional_id)
        if left is not None:
            if left.committed is None:
                left.committed = False
            self._show(left)
        return self._shut_out(transactional_id)

    def begin(self, transactional_id: str, epoch: int) -> Transaction:
        """Begins a transaction of the id's present writer."""
        self._check(transactional_id, epoch)
        before = self._open.get(transactional_id)
        if before is not None:
            if before.committed is None:
                raise FailedPrecondition(
                    f"the last transaction of {transactional_id} wasn't ended: start anew"
                )
            self._show(before)
        self._begun += 1
        transaction = Transaction(transactional_id, epoch, f"{transactional_id}/{epoch}/{self._begun}")
        self._open[transactional_id] = transaction
        over = math.ceil((self._later.now() + TIMEOUT) / _LOOK_EVERY) * _LOOK_EVERY
        self._later.at(over, functools.partial(self._give_up, transaction))
        return transaction

    def join(self, transaction: Transaction, target: Target) -> None:
        """Adds a partition or group to a transaction; raises `FailedPrecondition` if its writer was fenced."""
        self._check(transaction.id, transaction.epoch)
        transaction.targets[target] = None

    def end(self, transaction: Transaction, committed: bool, delay: Callable[[Target], float]) -> None:
        """Decides the transaction; `delay` returns how much later its end is visible at each target."""
        self._check(transaction.id, transaction.epoch)
        transaction.committed = committed
        now = self._later.now()
        for target in tuple(transaction.targets):
            self._later.at(now + delay(target), functools.partial(self._show_at, transaction, target))
        self._forget_if_shown(transaction)

    def is_open(self, transaction: Transaction) -> bool:
        """Returns whether its writer could still end it."""
        return transaction.committed is None and self._epochs.get(transaction.id) == transaction.epoch

    def _check(self, transactional_id: str, epoch: int) -> None:
        if self._epochs.get(transactional_id) != epoch:
            raise FailedPrecondition(
                f"another writer has taken over the transactions of {transactional_id}, or one took too long"
            )

    def _shut_out(self, transactional_id: str) -> int:
        self._epochs[transactional_id] = epoch = self._epochs.get(transactional_id, 0) + 1
        return epoch

    def _give_up(self, transaction: Transaction) -> None:
        if self.is_open(transaction):
            transaction.committed = False
            self._shut_out(transaction.id)
            self._show(transaction)

    def _show(self, transaction: Transaction) -> None:
        for target in tuple(transaction.targets):
            self._show_at(transaction, target)
        self._forget_if_shown(transaction)

    def _show_at(self, transaction: Transaction, target: Target) -> None:
        if target in transaction.targets:
            del transaction.targets[target]
            self._mark(transaction.name, target, bool(transaction.committed))
            self._forget_if_shown(transaction)

    def _forget_if_shown(self, transaction: Transaction) -> None:
        if not transaction.targets and self._open.get(transaction.id) is transaction:
            del self._open[transaction.id]
