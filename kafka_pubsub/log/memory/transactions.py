"""The `Transactions` port for the in-memory Kafka.

Theory: `transact` consists of steps, and `steps` yields them one by one, so that in a simulation other clients can act
in between, and the writer can die between any two of them.

Rules
1. As with Kafka, a failure before the request to commit always aborts; after that request the outcome is unknown.
2. A writer that was fenced, or whose transaction didn't end cleanly, starts again at its next transaction.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Generator, Mapping, Sequence

from kafka_pubsub.errors import (
    BrokerUnavailable,
    DeadlineExceeded,
    FailedPrecondition,
    InvalidArgument,
    PubSubError,
)
from kafka_pubsub.log.memory.cluster import MemoryCluster, refusal
from kafka_pubsub.log.memory.faults import FaultPlan, RequestOutcome, Step
from kafka_pubsub.log.memory.transaction_log import Target, Transaction
from kafka_pubsub.log.ports import Transactions
from kafka_pubsub.model import (
    Ending,
    Further,
    Membership,
    NewRecord,
    Outcome,
    Positions,
    PositionsLater,
    TopicPartition,
)

__all__ = ["MemoryTransactions"]

Steps = Generator[Step, None, Outcome]
#: The reason why a transaction is aborted, and its refused records.
Failure = tuple[PubSubError, Mapping[int, PubSubError]]


class MemoryTransactions(Transactions):
    """A `Transactions` in memory."""

    def __init__(self, cluster: MemoryCluster, faults: FaultPlan, transactional_id: str) -> None:
        if not transactional_id:
            raise InvalidArgument("transactional_id: must not be empty")
        self._cluster = cluster
        self._faults = faults
        self._id = transactional_id
        self._closed = False
        # The epoch of this writer; None: it starts anew.
        self._epoch: int | None = None
        self._one_at_a_time = threading.Lock()
        if cluster.moved is not None:
            cluster.moved.enter(self)

    @property
    def transactional_id(self) -> str:
        """The transactional id."""
        return self._id

    def transact(
        self,
        records: Sequence[NewRecord],
        positions: Positions | PositionsLater,
        membership: Membership | None,
        *,
        locate: bool = True,
    ) -> Outcome:
        """Stores records and positions together, or neither; see the port."""
        with self._one_at_a_time:
            steps = self.steps(records, positions, membership)
            while True:
                try:
                    next(steps)
                except StopIteration as over:
                    outcome: Outcome = over.value
                    return outcome if locate else outcome._replace(offsets=())

    def steps(
        self,
        records: Sequence[NewRecord],
        positions: Positions | PositionsLater,
        membership: Membership | None,
    ) -> Steps:
        """Stores all or nothing, in steps: each `next` yields the step that the next call takes."""
        if membership is not None and not callable(positions):
            _check(positions)
        if self._closed:
            return _aborted(FailedPrecondition(f"the transactions of {self._id} are closed"))
        if self._epoch is None:
            yield Step.START
            problem = self._try(Step.START, self._start)
            if problem is not None:
                self._epoch = None
                return _aborted(problem)
        begun = self._begin()
        if isinstance(begun, PubSubError):
            return _aborted(begun)
        offsets: list[int] = []
        failed = yield from self._prepare(begun, records, positions, membership, offsets)
        if failed is not None:
            return (yield from self._abort(begun, *failed))
        yield Step.COMMIT
        unknown = self._commit(begun)
        yield Step.ANSWER
        if unknown is not None:
            self._epoch = None
            return Outcome(Ending.UNKNOWN, tuple(offsets), unknown)
        return Outcome(Ending.STORED, tuple(offsets))

    def fence(self, transactional_id: str) -> None:
        """Ends the open transaction of the id and fences its writer; see the port."""
        error = self._faults.request("fence", transactional_id)
        if error is not None:
            raise error
        if transactional_id == self._id:
            self._start()
            return
        with self._cluster.change():
            self._cluster.transactions.start(transactional_id)

    def close(self) -> None:
        """Refuses further transactions; between two calls none is open."""
        self._closed = True
        if self._cluster.moved is not None:
            self._cluster.moved.leave(self)

    # As a sleeper of the clock

    def due_at(self) -> None:
        """Returns None: it acts when it is called."""

    def under_way(self, *, callbacks: bool) -> str:
        """Returns that a transaction is open, if one is."""
        return f"a transaction of {self._id} is open" if self._one_at_a_time.locked() else ""

    def wake(self) -> None:
        """Does nothing."""

    # -- steps -----------------------------------------------------------------------------------------------

    def _start(self) -> None:
        with self._cluster.change():
            self._epoch = self._cluster.transactions.start(self._id)

    def _begin(self) -> Transaction | PubSubError:
        epoch = self._epoch
        if epoch is None:
            return FailedPrecondition(f"the transactions of {self._id} weren't started")
        try:
            with self._cluster.change():
                return self._cluster.transactions.begin(self._id, epoch)
        except FailedPrecondition as shut_out:
            self._epoch = None
            return shut_out

    def _try(self, step: Step, take: Callable[[], PubSubError | None]) -> PubSubError | None:
        """Takes a step with the outcome that the plan gives. A step whose answer is lost counts as failed."""
        outcome = self._faults.transaction(self._id, step)
        if outcome is RequestOutcome.REFUSED:
            return BrokerUnavailable(f"injected: {step.value} of a transaction was refused")
        problem = take()
        if problem is None and outcome is not RequestOutcome.DONE:
            return DeadlineExceeded(f"injected: no answer to {step.value} of a transaction came")
        return problem

    def _prepare(
        self,
        begun: Transaction,
        records: Sequence[NewRecord],
        positions: Positions | PositionsLater,
        membership: Membership | None,
        offsets: list[int],
    ) -> Generator[Step, None, Failure | None]:
        """Takes all steps but the commit."""
        while True:
            if (failed := (yield from self._write_all(begun, records, offsets))) is not None:
                return failed
            if membership is None:
                return None
            yield Step.OFFSETS
            given = _given(positions, offsets)
            if isinstance(given, PubSubError):
                return given, {}
            if not isinstance(given, Further):
                break
            records, positions = given
        found = given
        problem = self._try(Step.OFFSETS, lambda: self._send_offsets(begun, found, membership))
        return None if problem is None else (problem, {})

    def _write_all(
        self, begun: Transaction, records: Sequence[NewRecord], offsets: list[int]
    ) -> Generator[Step, None, Failure | None]:
        for number, record in enumerate(records, len(offsets)):
            yield Step.WRITE
            if (refused := self._refused(record)) is not None:
                return refused, {number: refused}
            problem = self._try(Step.WRITE, functools.partial(self._write, begun, record, offsets))
            if problem is not None:
                return problem, {}
        return None

    def _refused(self, record: NewRecord) -> PubSubError | None:
        """Returns why no transaction could take the record now."""
        refused = self._faults.refuses(self._id, record.topic, record.key) or self._faults.away(
            TopicPartition(record.topic, record.partition)
        )
        if refused is not None:
            return refused
        try:
            with self._cluster.changed:
                self._cluster.log(TopicPartition(record.topic, record.partition))
                return refusal(self._cluster, record.topic, record.value, record.key, record.headers)
        except PubSubError as error:
            return error

    def _write(self, begun: Transaction, record: NewRecord, offsets: list[int]) -> PubSubError | None:
        place = TopicPartition(record.topic, record.partition)
        try:
            with self._cluster.change():
                log = self._cluster.log(place)
                self._cluster.transactions.join(begun, place)
                milliseconds = record.timestamp if record.timestamp > 0 else self._cluster.now_ms()
                stored = log.append(record.key, record.value, record.headers, milliseconds, begun.name)
                offsets.append(stored.offset() or 0)
        except PubSubError as error:
            return error
        return None

    def _send_offsets(
        self, begun: Transaction, positions: Positions, membership: Membership
    ) -> PubSubError | None:
        try:
            with self._cluster.change():
                group = self._cluster.group(membership.group)
                refused = group.fence(*_place(membership))
                problems = [group.problem(partition, value) for partition, value in positions.items()]
                refused = refused or next((each for each in problems if each is not None), None)
                if refused is None:
                    self._cluster.transactions.join(begun, membership.group)
                    group.hold(begun.name, positions)
                return refused
        except PubSubError as error:
            return error

    def _commit(self, begun: Transaction) -> PubSubError | None:
        outcome = self._faults.transaction(self._id, Step.COMMIT)
        if outcome is RequestOutcome.REFUSED:
            return BrokerUnavailable("injected: the commit never reached the coordinator")
        if outcome is RequestOutcome.LATE:
            self._commit_late(begun)
        else:
            try:
                self._end(begun, committed=True)
            except PubSubError as shut_out:
                return shut_out
        if outcome is RequestOutcome.DONE:
            return None
        return DeadlineExceeded("injected: no answer to the commit of a transaction came")

    def _commit_late(self, begun: Transaction) -> None:
        # The plan is asked now, because no plan runs under the lock.
        delays, lateness = self._delays(begun), self._faults.lateness()

        def arrive() -> None:
            if self._cluster.transactions.is_open(begun):
                self._cluster.transactions.end(begun, True, delays.__getitem__)

        with self._cluster.change() as now:
            self._cluster.later.at(now + lateness, arrive)

    def _abort(
        self, begun: Transaction, reason: PubSubError, refused: Mapping[int, PubSubError] | None = None
    ) -> Steps:
        yield Step.ABORT
        outcome = self._faults.transaction(self._id, Step.ABORT)
        try:
            if outcome is not RequestOutcome.REFUSED:
                self._end(begun, committed=False)
        except PubSubError:
            outcome = RequestOutcome.REFUSED
        if outcome is not RequestOutcome.DONE:
            self._epoch = None
        return Outcome(Ending.ABORTED, (), reason, refused or {})

    def _end(self, begun: Transaction, *, committed: bool) -> None:
        delays = self._delays(begun)
        with self._cluster.change():
            self._cluster.transactions.end(begun, committed, delays.__getitem__)

    def _delays(self, begun: Transaction) -> Mapping[Target, float]:
        return {target: self._faults.marker_delay(self._id, target) for target in tuple(begun.targets)}


def _aborted(reason: PubSubError) -> Outcome:
    return Outcome(Ending.ABORTED, (), reason)


def _place(membership: Membership) -> tuple[str | None, int]:
    match membership.token:
        case (str() as member, int() as generation):
            return member, generation
        case _:
            return None, -1


def _given(
    positions: Positions | PositionsLater, offsets: Sequence[int]
) -> Positions | Further | PubSubError:
    """Returns the positions, waits for late ones, or returns why none go with the records."""
    given = positions(offsets) if callable(positions) else positions
    if given is None:
        return FailedPrecondition("no positions came for the records")
    if isinstance(given, Further):
        return given
    try:
        _check(given)
    except InvalidArgument as error:
        return error
    return given


def _check(positions: Positions | PositionsLater) -> None:
    if callable(positions):
        return  # `_given` checks them
    if not positions:
        raise InvalidArgument("positions: without one nothing fences the transaction against a newer owner")
    for to in positions.values():
        if to.offset is None or to.offset < 0:
            raise InvalidArgument(f"{to.offset} isn't an offset that can be committed")
        if "\0" in to.metadata:
            raise InvalidArgument("the text beside an offset can't hold a NUL character")
