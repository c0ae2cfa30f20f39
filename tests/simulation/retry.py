"""The relocating half of a simulated process: transactions in steps, bodies that come late.

Theory. A transaction is a row of steps (`MemoryTransactions.steps`), one taken whenever the schedule says so; a process
may die, stall or lose its partitions between any two. What shares a transaction, and what is tried again without a
record that was refused, is decided as `client/mover.py` does, by its own functions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Protocol

from kafka_pubsub.client.body_reader import BodyRequest, FoundBodies
from kafka_pubsub.client.mover import Flight, Landing, _by_flight, positions_of_all
from kafka_pubsub.client.relocating import LANDING, Relocating, transactional_id
from kafka_pubsub.config import SubscriptionRecord
from kafka_pubsub.core.checkpoint import Checkpoint, Named
from kafka_pubsub.errors import DeadlineExceeded, PubSubError
from kafka_pubsub.memory import MemoryBackend
from kafka_pubsub.memory.transactions import MemoryTransactions, Steps
from kafka_pubsub.model import Ending, Membership, Outcome, TopicPartition
from tests.simulation.retry_ledger import RETRY

__all__ = ["SteppedRelocating"]


class Chances(Protocol):
    """What a relocating process asks of its world."""

    @property
    def calm(self) -> bool: ...
    def chance(self, probability: float) -> bool: ...
    def time_passes(self, seconds: float) -> None: ...


class SteppedRelocating(Relocating):
    """The real one without its threads."""

    def __init__(
        self,
        world: Chances,
        backend: MemoryBackend,
        record: SubscriptionRecord,
        writer: int,
        membership: Callable[[], Membership | None],
    ) -> None:
        super().__init__(backend, record, RETRY, writer, membership)
        self._world = world
        self._backend = backend
        self._transactions: MemoryTransactions = backend.transactions(transactional_id(record.name, writer))
        self._waiting: deque[Flight] = deque()
        self.mover.send = self._waiting.append  # type: ignore[method-assign,assignment]
        #: Those in the transaction that is under way, and its steps.
        self._together: list[Flight] = []
        self._steps: Steps | None = None
        self._requests: deque[BodyRequest] = deque()

    def read(self, number: int, epoch: int, offsets: Sequence[int]) -> None:
        self._requests.append(BodyRequest(TopicPartition(RETRY, number), epoch, offsets))

    def trim(self, number: int, offset: int) -> None:
        self._trim(number, offset)

    @property
    def busy(self) -> bool:
        """Whether a step would do anything."""
        return bool(self._requests or self._waiting or self._steps is not None)

    def step(self) -> None:
        """One step of the transaction, and perhaps some bodies."""
        if self._requests and (self._world.calm or self._world.chance(0.7)):
            self._read()
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
        flights = self._together
        records = [record for flight in flights for record in flight.records]
        positions = positions_of_all(flights)
        self._steps = self._transactions.steps(records, positions, flights[0].membership)

    def _end(self, outcome: Outcome) -> None:
        if outcome.ending is Ending.UNKNOWN:
            self._transactions.fence(self._transactions.transactional_id)
        flights, self._together = self._together, []
        refused, offsets = _by_flight(flights, outcome.refused), iter(outcome.offsets)
        for at, flight in enumerate(flights):
            mine = tuple(islice(offsets, len(flight.records)))
            if refused and at not in refused:
                self._together.append(flight)
            else:
                landing = Landing(flight, outcome.ending, mine, refused.get(at, {}), outcome.reason)
                self._landed(landing)
        if self._together:
            self._take_off()

    def _read(self) -> None:
        request = self._requests.popleft()
        try:
            fetched = self._backend.record_fetch().fetch(request.place, request.offsets, 1 << 20, 0)
        except PubSubError:
            self._found(FoundBodies(request))
        else:
            self._found(FoundBodies(request, fetched.records, fetched.missing))

    def checkpoint(self, number: int, named: Named, end: int) -> Checkpoint | None:
        while True:
            try:
                return super().checkpoint(number, named, end)
            except DeadlineExceeded:  # its transaction doesn't show yet
                self._world.time_passes(0.5)

    def wait(self, numbers: Sequence[int], timeout: float = LANDING) -> list[int]:
        while self.busy and any(self._up[number] for number in numbers):
            if self._world.chance(0.02):
                return [number for number in numbers if self._up[number]]
            self.step()
        return []

    def fence(self, subscription: str, writer: int) -> None:
        self._transactions.fence(transactional_id(subscription, writer))
