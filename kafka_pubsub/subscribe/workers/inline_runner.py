"""Inline runs: the thread that reads messages calls quick callbacks itself.

Theory. A record that crosses threads costs more than a callback that only computes: the interpreter lets one thread
run at a time, and a record made on one processor is cold on the next. So as long as callbacks are quick, the
fetcher runs them for the records that it has read (`inline_lease.py`), in small reads that stay in the
processor's cache. A slow callback must never hold it up: the runner watches, and when a callback takes long it *takes
over*: the fetcher's records become ordinary leases, another thread becomes the fetcher, and the old one ends with its
callback, counted as a worker of the worker pool until then.

Rules
1. Only the inline thread takes records from `_records`, and only a take-over takes the rest; an iterator over a list
   gives each record to one of them.
2. A take-over and the inline thread must agree on the record that is with its callback, and on those that were left:
   that is decided under `_lock`. The hot path, a record that is acked at once, takes no lock.
3. A message that is kept gets a lease runner of its own. An ack on another thread may cross that change: it reads the
   lease runner again after it has set the state, and the inline thread reads the state after it has set the lease
   runner.
4. A thread that wants a message's lease for itself (an extension, a close inside the callback) takes over first.
5. A message that is kept counts as in flight: a lease runner keeps no more messages than it may, and then begins no
   other.
6. Only callbacks that took long while no thread of the worker pool worked, or that had to be taken over, count as
   slow. In all other cases the interpreter's lock or the machine may be the cause, and the fetcher tries again after
   some seconds: else one bad moment would slow a stream for minutes.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from operator import length_hint

from kafka_pubsub.log.records import Record
from kafka_pubsub.model import AckFuture, Message
from kafka_pubsub.subscribe.formats.record import attempt_of
from kafka_pubsub.subscribe.partition.events import LeaseOutcome, LeaseReport, Nacked, Passed
from kafka_pubsub.subscribe.partition.leases import Lease
from kafka_pubsub.subscribe.workers.ack_futures import refused
from kafka_pubsub.subscribe.workers.lease_runner import ACKED, NACKED, PENDING, LeaseRunner, Reports

__all__ = ["LEFT", "InlineLeaseRunner", "InlineRun", "Pace"]

#: Records of one read: half a megabyte, if they have a kilobyte each, which stays in a processor's cache until freed.
LONGEST = 500
#: Records of the first read of a stream, or after a callback that wasn't quick.
SHORTEST = 2
#: Seconds for a record, callback included, up to which it is quick. A callback that waits for I/O takes longer.
QUICK = 30e-6
#: Seconds that an inline run may take in addition: for locks, other threads and other processes.
SLACK = 1e-3
#: Seconds without inline runs after a callback that wasn't quick; doubled each time, up to the second figure.
PENALTY, LONGEST_PENALTY = 1.0, 60.0
#: The most of these seconds where nothing is proven: callbacks that only compute look slow, too, beside the worker
#: pool's threads, or where the worker pool had no room. It may fall behind just because of its many threads.
LONGEST_DOUBT = 8.0
#: The share of messages that callbacks may leave unacked (for another thread to ack). Above it an inline run, which
#: makes a lease of each, costs more than it saves.
LEFT = 0.25
#: Seconds after which an inline run counts as slow, though none of its callbacks does: some times the time of the
#: longest read of quick callbacks. Until it ends nothing is fetched or committed, and a rebalance waits.
LONGEST_RUN = 0.2


class Pace:
    """The number of records to take inline at once, by the time that the last ones took."""

    def __init__(self) -> None:
        self._limit = SHORTEST
        self._penalty = PENALTY
        self._not_before = 0.0
        self._careful = False

    def limit(self, now: float) -> int:
        """Returns how many records to read for an inline run now; 0: no inline run."""
        return self._limit if now >= self._not_before else 0

    def record_inline(
        self, records: int, left: int, seconds: float, now: float, *, alone: bool = False
    ) -> None:
        """Takes the time of an inline run; `left` of its records were kept unacked, or not begun because others were.

        `alone`: the worker pool's threads were idle.
        """
        if left > LEFT * max(records, LONGEST // 10):
            self.slow(now)
        elif seconds > QUICK * records + SLACK:
            self._limit //= 8  # one slow run proves nothing: other load on the machine has the same effect
            if self._limit < SHORTEST:
                self.slow(now, proved=alone)
        elif self._limit < LONGEST:
            self._limit = min(2 * self._limit, LONGEST)
        else:
            self._penalty = PENALTY

    def beside(self, careful: bool) -> None:
        """Sets whether each message is noted before it starts: with so many commits every callback looks slow."""
        if self._careful and not careful:
            self._not_before, self._penalty = 0.0, PENALTY
        self._careful = careful

    def hindered(self, now: float) -> None:
        """Notes that the worker pool had no room for one more callback; once proves nothing about its callbacks."""
        self._limit //= 2
        if self._limit < SHORTEST:
            self.slow(now, proved=False)

    def slow(self, now: float, *, proved: bool = True) -> None:
        """Notes that callbacks aren't quick, or don't seem so: none is called inline for a while."""
        penalty = min(self._penalty, LONGEST_PENALTY if proved else LONGEST_DOUBT)
        self._not_before, self._penalty = now + penalty, 2 * penalty
        self._limit = SHORTEST


class InlineLeaseRunner(LeaseRunner):
    """The runner of an inline lease; after a take-over, of the lease of the record that is with its callback."""

    __slots__ = (
        "_current",
        "_last",
        "_left",
        "_lock",
        "_nacked",
        "_ordered",
        "_passed",
        "_records",
        "_rest",
        "_skip",
        "_skipped",
        "_spare",
        "_taken_over",
    )

    def __init__(self, lease: Lease, reports: Reports, *, ordered: bool, spare: int = LONGEST) -> None:
        super().__init__(lease, reports)
        lease.lease_runner = self
        self._ordered = ordered
        self._lock = threading.Lock()
        self._records = iter(lease.records)
        #: The records that it won't begin; filled when it ends, or must end.
        self._rest: list[Record] = []
        #: How many more messages may be kept.
        self._spare = spare
        #: Reports of the messages that were kept, the nacked records, the keys of both, and the later records of these
        #: keys. Empty: none.
        self._left: list[LeaseReport] = []
        self._nacked: list[Nacked] = []
        self._skip: set[bytes | None] = set()
        self._skipped: list[Record] = []
        #: The record that was left or passed over last.
        self._last: Record | None = None
        #: Whether another thread has the records that aren't begun; and whether one was with its callback then.
        self._taken_over = self._current = False
        #: The report of the inline thread at its end.
        self._passed: Passed | None = None

    def pass_through(self, callback: Callable[[Message], object]) -> Passed | LeaseReport | None:
        """Takes one record after the other; after a take-over, returns the report of the current record, if any."""
        skip, records, retried = self._skip, self._records, bool(self.lease.keys)
        new, kind = object.__new__, self._kind()  # as in `run`
        self.begun = True
        for record in records:
            if skip and record.key() in skip:
                self._skips(record)
                continue
            message = new(kind)
            message._record = record  # type: ignore[assignment]
            message._sink = self
            message._attempt = attempt_of(record) if retried else 1
            message._state = PENDING
            try:
                callback(message)
            except BaseException as error:  # this thread must go on with the key after any exception
                self.raised(message, error)
            if message._state != ACKED and not self._leaves(message, record):
                return self.left(message)
        return self._end()

    def _skips(self, record: Record) -> None:
        with self._lock:
            if not self._taken_over:  # else it was counted in there
                self._last = record
                self._skipped.append(record)

    def _leaves(self, message: Message, record: Record) -> bool:
        """Notes that the callback has returned without an ack, if the message is still inline."""
        with self._lock:
            if self._taken_over:
                return False
            state = NACKED if message._state == NACKED else self._keep(message, record)
            if state == ACKED:  # on another thread, just now (rule 3)
                return True
            if state == NACKED:
                self._nacked.append((record, self._delay, self._error))
            self._last = record
            self._delay, self._error = None, ""
            if self._ordered and (key := record.key()) is not None:
                self._skip.add(key)
            if self._spare <= 0:
                self._reached()
            return True

    def _keep(self, message: Message, record: Record) -> int:
        """Gives the message a lease and a lease runner of its own, unless it was acked or nacked; returns its state."""
        lease = self.lease.of_one(record, record.key() if self._ordered else None)
        lease.lease_runner = lease_runner = LeaseRunner(lease, self.reports)
        lease_runner.begun = lease_runner.detached = True
        lease_runner.withdrawn = self.withdrawn
        message._sink = lease_runner
        state = message._state
        if state == PENDING:
            self._left.append(LeaseReport(lease, 0, LeaseOutcome.KEPT))
            self._spare -= 1
        else:
            lease_runner.let_go()
        return state

    def _reached(self) -> int:
        """Takes the records that aren't begun; returns how many records are begun."""
        self._rest += self._records
        return len(self.lease.records) - len(self._rest)

    def _end(self) -> Passed | LeaseReport | None:
        self.let_go()
        with self._lock:
            if not self._taken_over:
                reached = self._reached()
                self._passed = Passed(self.lease, reached, self._left, self._skipped, False, self._nacked)
                return self._passed
        return LeaseReport(self.lease, 1, LeaseOutcome.FINISHED) if self._current else None

    def raised(self, message: Message, error: BaseException) -> None:
        if message._state == PENDING:
            self._delay = None  # that of an earlier message, whose nack on another thread crossed its end
        super().raised(message, error)

    def remaining(self) -> int:
        """Returns how many records it hasn't begun."""
        return length_hint(self._records)

    def take_over(self) -> Passed | None:
        """Takes the records that aren't begun, and the report if all are; None: it was taken over before.

        The thread that takes over reports at once: before that nothing may be received. The inline thread doesn't.
        """
        with self._lock:
            if self._passed is not None or self._taken_over:
                return self._passed
            self._taken_over = True
            records, skipped, reached = self.lease.records, list(self._skipped), self._reached()
            if reached and (last := records[reached - 1]) is not self._last:
                if last.key() in self._skip:  # the inline thread is about to find that out
                    skipped.append(last)
                else:
                    reached, self._current = reached - 1, True
            if not self._current:
                self.let_go()
            return Passed(self.lease, reached, self._left, skipped, self._current, self._nacked)

    def ack_with_response(self, message: Message) -> AckFuture:
        with self._lock:  # it is acked in this run, or it was left
            if message._sink is self:
                return self._ack_with_response(message)
        return message._sink.ack_with_response(message)

    def _ack_with_response(self, message: Message) -> AckFuture:
        if self._late(message):
            return refused(message)
        future = self.reports.awaited(self.lease, message)
        message._state = ACKED
        return future

    def extend(self, message: Message, seconds: float) -> None:
        """Moves the deadline of one message, which needs a lease of its own (rule 4)."""
        if seconds > 0 and message._state == PENDING:
            self.reports.take_over()
        if message._sink is self:
            super().extend(message, seconds)
        else:
            message._sink.extend(message, seconds)


class InlineRun:
    """The lease runners that the fetcher runs after one read, one for each partition, one after the other."""

    def __init__(self, lease_runners: Sequence[InlineLeaseRunner]) -> None:
        self.lease_runners = deque(lease_runners)
        #: How many records these have.
        self.records = sum(len(each.lease.records) for each in lease_runners)
        #: Ordinary leases that it runs after those.
        self.aside: deque[LeaseRunner] = deque()
        #: The ordinary lease that it has taken.
        self._taken: LeaseRunner | None = None
        self._lock = threading.Lock()
        self.thread = threading.current_thread()
        #: Set by a take-over: the inline thread isn't the fetcher any more.
        self.over = False
        #: Its progress at the last check, since when that hasn't changed, and the time of the first check.
        self._seen = (-1, -1)
        self._seen_at = 0.0
        self._first_seen_at: float | None = None

    @property
    def current(self) -> LeaseRunner | None:
        """The lease runner that runs now."""
        return self.lease_runners[0] if self.lease_runners else self._taken

    def next_aside(self, *, wanted: bool) -> LeaseRunner | None:
        """Returns the next ordinary lease to run; None: there is none, another thread has them, or none is `wanted`."""
        with self._lock:
            self._taken = self.aside.popleft() if wanted and self.aside and not self.over else None
            return self._taken

    def leave_aside(self) -> Sequence[LeaseRunner]:
        """Returns the leases that another thread must take."""
        with self._lock:
            rest, self.aside = self.aside, deque()
            return rest

    def stands(self, now: float) -> float:
        """Returns for how long the same callback runs, by the checks so far; or the whole run, if that takes long."""
        if self._first_seen_at is None:
            self._first_seen_at = now
        if (all_of_it := now - self._first_seen_at) >= LONGEST_RUN:
            return all_of_it
        seen = (
            len(self.lease_runners),
            self.lease_runners[0].remaining() if self.lease_runners else len(self.aside),
        )
        if seen != self._seen:
            self._seen, self._seen_at = seen, now
        return now - self._seen_at
