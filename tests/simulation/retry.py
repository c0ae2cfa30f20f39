"""The moving half of a simulated process: transactions in steps, bodies that come late.

Theory. A transaction is a row of steps (`MemoryTransactions.steps`), each taken whenever the schedule says so; a
process may die, stall or lose its partitions between any two. Which moves share a transaction, and which are tried
again without a record that was refused, is decided as `transaction_thread.py` does, by its own functions. Dead
letters are written beside it as by `subscribe/retry_topic/dead_letter_writer.py`, in a transaction that waits for its
positions between two of its steps. When their topic doesn't answer, it stands there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Protocol

from kafka_pubsub.errors import DeadlineExceeded, PubSubError
from kafka_pubsub.log.memory import MemoryBackend
from kafka_pubsub.log.memory.faults import Step
from kafka_pubsub.log.memory.transactions import MemoryTransactions, Steps
from kafka_pubsub.model import Ending, Membership, Outcome, TopicPartition
from kafka_pubsub.partition_id import PartitionId
from kafka_pubsub.subscribe.formats.checkpoint import Checkpoint, Named
from kafka_pubsub.subscribe.retry_topic.body_reader import BodyRequest, FoundBodies
from kafka_pubsub.subscribe.retry_topic.dead_letter_writer import PATIENCE, Written, completed, further
from kafka_pubsub.subscribe.retry_topic.layout import Layout
from kafka_pubsub.subscribe.retry_topic.retry_io import MOVE_WAIT, RetryIO, dead_letter_id, transactional_id
from kafka_pubsub.subscribe.retry_topic.transaction_thread import (
    MoveRequest,
    MoveResult,
    _by_move_request,
    positions_of_all,
)

__all__ = ["SteppedRelocating"]


class Chances(Protocol):
    """The world's part that a moving process needs."""

    @property
    def calm(self) -> bool: ...
    def chance(self, probability: float) -> bool: ...
    def now(self) -> float: ...
    def silent_until(self, since: float) -> float | None: ...
    def time_passes(self, seconds: float) -> None: ...


class SteppedRelocating(RetryIO):
    """The real thread's work without its threads."""

    def __init__(
        self,
        world: Chances,
        backend: MemoryBackend,
        layout: Layout,
        writer: int,
        membership: Callable[[], Membership | None],
        rejoin: Callable[[], None],
    ) -> None:
        record = layout.record
        super().__init__(backend, record, layout, writer, membership, rejoin)
        self._world = world
        self._backend = backend
        self._transactions: MemoryTransactions = backend.transactions(transactional_id(record.name, writer))
        self._waiting: deque[MoveRequest] = deque()
        self.mover.send = self._waiting.append  # type: ignore[method-assign,assignment]
        #: Moves in the transaction that is under way, and its steps.
        self._together: list[MoveRequest] = []
        self._steps: Steps | None = None
        #: When a transaction wasn't stored last, as far as we know.
        self.failed_at = 0.0
        self._requests: deque[BodyRequest] = deque()
        self._writer: MemoryTransactions = backend.transactions(dead_letter_id(record.name, writer))
        self._unwritten: deque[MoveRequest] = deque()
        self.dead_letters.send = self._unwritten.append  # type: ignore[method-assign,assignment]
        self.dead_letters.complete = self._completed  # type: ignore[method-assign]
        #: The dead letters that are written and the steps; since when they wait for the log's answer; whether their
        #: positions were asked for, and have come.
        self._dead_letters: MoveRequest | None = None
        self._dead_letter_steps: Steps | None = None
        self._since = 0.0
        self._written_all = self._asked = False
        self._whole: MoveRequest | None = None

    def read(self, number: PartitionId, epoch: int, offsets: Sequence[int]) -> None:
        self._requests.append(BodyRequest(self.layout.beside(number), epoch, offsets))

    def trim(self, number: PartitionId, offset: int) -> None:
        self._trim(number, offset)

    @property
    def busy(self) -> bool:
        """Whether a step would do anything."""
        return bool(self._requests or self._waiting or self._steps is not None or self._writes)

    @property
    def _writes(self) -> bool:
        """Whether a step would do anything about dead letters; while their topic doesn't answer, nothing does."""
        if self._dead_letters is None:
            return bool(self._unwritten)
        if self._asked:
            return self._whole is not None or self._waited
        until = self._world.silent_until(self._since) if self._written_all else None
        return until is None or until <= self._world.now()

    def step(self) -> None:
        """A single step of the transaction, and perhaps some bodies."""
        if self._requests and (self._world.calm or self._world.chance(0.7)):
            self._read()
        if self._writes and (self._world.calm or self._world.chance(0.5)):
            self._write()
        if self._steps is None and self._waiting:
            self._begin()
        if self._steps is not None:
            try:
                next(self._steps)
            except StopIteration as over:
                self._steps = None
                self._end(over.value)

    def _begin(self) -> None:
        first = self._waiting.popleft()
        self._together = [first]
        while self._waiting and self._waiting[0].membership == first.membership and self._world.chance(0.7):
            self._together.append(self._waiting.popleft())
        self._take_off()

    def _take_off(self) -> None:
        move_requests = self._together
        records = [record for move_request in move_requests for record in move_request.records]
        positions = positions_of_all(move_requests)
        self._steps = self._transactions.steps(records, positions, move_requests[0].membership)

    def _end(self, outcome: Outcome) -> None:
        if outcome.ending is not Ending.STORED:
            self.failed_at = self._world.now()
        if outcome.ending is Ending.UNKNOWN:
            self._transactions.fence(self._transactions.transactional_id)
        move_requests, self._together = self._together, []
        refused, offsets = _by_move_request(move_requests, outcome.refused), iter(outcome.offsets)
        for at, move_request in enumerate(move_requests):
            mine = tuple(islice(offsets, len(move_request.records)))
            if refused and at not in refused:
                self._together.append(move_request)
            else:
                move_result = MoveResult(
                    move_request, outcome.ending, mine, refused.get(at, {}), outcome.reason
                )
                self._move_answered(move_result)
        if self._together:
            self._take_off()

    @property
    def _waited(self) -> bool:
        """Whether the positions have been waited for long enough."""
        return self._world.now() >= self._since + PATIENCE

    def _write(self) -> None:
        """A single step of a transaction of dead letters."""
        if self._dead_letters is None:
            self._dead_letters = move_request = self._unwritten.popleft()
            self._written_all = self._asked = False
            self._whole = None
            self._dead_letter_steps = self._writer.steps(
                move_request.records,
                lambda _: None if self._whole is None else further(move_request, self._whole),
                move_request.membership,
            )
        elif self._asked and self._whole is None and not self._waited:
            return  # the core has still time for its commit
        elif self._written_all and not self._asked:
            if self._world.silent_until(self._since) is not None:
                self._give_up()
            else:
                self._asked, self._since = True, self._world.now()
                self._written(Written(self._dead_letters, True))
            return
        assert self._dead_letter_steps is not None
        try:
            self._written_all = next(self._dead_letter_steps) is Step.OFFSETS or self._written_all
            self._since = self._world.now()
        except StopIteration as over:
            self._end_of_dead_letters(over.value)

    def _give_up(self) -> None:
        """The log has answered nothing for long; the next transaction ends this transaction."""
        assert self._dead_letters is not None
        move_request, self._dead_letters = self._dead_letters, None
        self._writer._epoch = None
        self._written(Written(move_request, False, reason=DeadlineExceeded("injected: no answer")))

    def _end_of_dead_letters(self, outcome: Outcome) -> None:
        move_request, self._dead_letters = self._dead_letters, None
        assert move_request is not None
        if self._whole is not None:
            if outcome.ending is Ending.UNKNOWN:
                self._writer.fence(self._writer.transactional_id)
            self._move_answered(
                MoveResult(self._whole, outcome.ending, outcome.offsets, outcome.refused, outcome.reason)
            )
        elif not self._asked:
            self._written(Written(move_request, False, outcome.refused, outcome.reason))

    def _completed(self, rest: MoveRequest) -> bool:
        move_request = self._dead_letters
        if (
            move_request is None
            or not self._asked
            or (move_request.partition, move_request.epoch) != (rest.partition, rest.epoch)
        ):
            return False
        self._whole = completed(move_request, rest)
        return True

    def _read(self) -> None:
        request = self._requests.popleft()
        try:
            fetched = self._backend.record_fetch().fetch(request.place, request.offsets, 1 << 20, 0)
        except PubSubError:
            self._found(FoundBodies(request))
        else:
            self._found(FoundBodies(request, fetched.records, fetched.missing))

    def checkpoints(
        self, wanted: Mapping[TopicPartition, tuple[Named, int]]
    ) -> Mapping[TopicPartition, Checkpoint]:
        while True:
            try:
                return super().checkpoints(wanted)
            except DeadlineExceeded:  # its transaction doesn't show yet
                self._world.time_passes(0.5)

    def wait(self, numbers: Sequence[PartitionId], timeout: float = MOVE_WAIT) -> list[PartitionId]:
        while self.busy and any(self._up[number] for number in numbers):
            if self._world.chance(0.02):
                return [number for number in numbers if self._up[number]]
            self.step()
        return []

    def fence(self, subscription: str, writer: int) -> None:
        self._transactions.fence(transactional_id(subscription, writer))
        self._writer.fence(dead_letter_id(subscription, writer))
