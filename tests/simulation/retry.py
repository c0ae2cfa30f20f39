"""The retry topic in the simulation: transactions in steps, bodies that come late, and books about both logs.

Theory. A transaction is a row of steps (`MemoryTransactions.steps`), one taken whenever the schedule says so; a process
may die, stall or lose its partitions between any two. The log's own truth is looked at after every action: whatever the
group has stored by then, of both partitions, says what is finished.

What is promised besides (docs/invariants.md)
  claims   what the log calls finished, and doesn't wait in the retry topic, was acked or is a dead letter
  order    a message begins under a valid owner only when every earlier one of its key was acked or is a dead letter
  durable  it doesn't begin again under a valid owner once the log knows its ack
  due      it doesn't begin before the time that its newest retry record says
  buried   a dead letter is written once, after exactly so many attempts
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from kafka_pubsub.client.body_reader import BodyRequest, FoundBodies
from kafka_pubsub.client.mover import Flight, Landing
from kafka_pubsub.client.relocating import LANDING, Relocating, transactional_id
from kafka_pubsub.config import SubscriptionRecord
from kafka_pubsub.core import ack_map
from kafka_pubsub.core.effects import Commit, CommitBoth
from kafka_pubsub.core.events import Record
from kafka_pubsub.core.retry_record import RETRY_HEADER, RetryInfo, decode
from kafka_pubsub.memory import MemoryBackend, MemoryCluster
from kafka_pubsub.memory.transactions import MemoryTransactions, Steps
from kafka_pubsub.model import Committed, Ending, Membership, TopicPartition
from tests.simulation.ledger import Ledger, Log, Ownership, promise

__all__ = ["GRAVES", "RETRY", "RetryLedger", "SteppedRelocating"]

RETRY, GRAVES = "orders.sub.billing.retry", "graves"


class Chances(Protocol):
    """What a relocating process asks of its world."""

    @property
    def calm(self) -> bool: ...
    def chance(self, probability: float) -> bool: ...


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
        self._flights: deque[Flight] = deque()
        self.mover.send = self._flights.append  # type: ignore[method-assign,assignment]
        self._steps: Steps | None = None
        self._requests: deque[BodyRequest] = deque()

    def read(self, number: int, epoch: int, offsets: Sequence[int]) -> None:
        self._requests.append(BodyRequest(TopicPartition(RETRY, number), epoch, offsets))

    def trim(self, number: int, offset: int) -> None:
        self._trim(number, offset)

    def step(self) -> None:
        """One step of the transaction, and perhaps some bodies."""
        if self._requests and (self._world.calm or self._world.chance(0.7)):
            self._read()
        if self._steps is None and self._flights:
            flight = self._flights[0]
            self._steps = self._transactions.steps(flight.records, flight.positions, flight.membership)
        if self._steps is not None:
            try:
                next(self._steps)
            except StopIteration as over:
                self._steps = None
                flight, outcome = self._flights.popleft(), over.value
                if outcome.ending is Ending.UNKNOWN:
                    self._transactions.fence(self._transactions.transactional_id)
                self._landed(Landing(flight, outcome.ending, outcome.offsets, outcome.refused))

    def _read(self) -> None:
        request = self._requests.popleft()
        fetched = self._backend.record_fetch().fetch(request.place, request.offsets, 1 << 20, 0)
        self._found(FoundBodies(request, fetched.records, fetched.missing))

    def wait(self, numbers: Sequence[int], timeout: float = LANDING) -> list[int]:
        while self._flights and any(self._up[number] for number in numbers):
            if self._world.chance(0.02):
                return [number for number in numbers if self._up[number]]
            self.step()
        return []

    def fence(self, subscription: str, writer: int) -> None:
        self._transactions.fence(transactional_id(subscription, writer))


class RetryLedger(Ledger):
    """Believes the two logs and the handlers, and nobody else."""

    def __init__(
        self, partitions: int, *, ordered: bool, cluster: MemoryCluster, group: str, attempts: int
    ) -> None:
        super().__init__(partitions, ordered=ordered)
        self._cluster = cluster
        self._group = group
        self._attempts = attempts
        self._seen: dict[TopicPartition, Committed] = {}
        self.dead: list[set[int]] = [set() for _ in range(partitions)]
        self._graves_read = 0

    # What the log holds

    def look(self, now: float) -> None:
        """Whatever the group has stored since the last look."""
        with self._cluster.changed:
            stored = dict(self._cluster.group(self._group).offsets)
        if stored == self._seen:
            return
        self._seen = stored
        self._read_graves()
        for number, log in enumerate(self.logs):
            main = stored.get(TopicPartition("orders", number), Committed(0, ""))
            retry = stored.get(TopicPartition(RETRY, number), Committed(0, ""))
            claimed = log.covered(main.offset or 0, main.metadata) - self.waiting(number, retry)
            claimed -= log.before
            unfounded = claimed - log.acked - self.dead[number] - log.gone
            promise(not unfounded, f"claims: {sorted(unfounded)} of {number} are called finished")
            log.durable |= claimed
            for owner in self.ownerships.values():
                if owner.partition == number:
                    owner.finished |= claimed

    def _read_graves(self) -> None:
        letters = self._cluster.log(TopicPartition(GRAVES, 0)).read(self._graves_read, 1_000_000)
        for letter in letters:
            self._graves_read = (letter.offset() or 0) + 1
            headers = dict(letter.headers() or ())
            number = int(headers["ps-dead-partition"] or b"")
            origin = int(headers["ps-dead-offset"] or b"")
            promise(origin not in self.dead[number], f"buried: {origin} of {number} twice")
            attempts = int(headers["ps-dead-attempts"] or b"")
            promise(attempts == self._attempts, f"buried: {origin} of {number} after {attempts} attempts")
            self.dead[number].add(origin)

    def waiting(self, number: int, retry: Committed) -> set[int]:
        """Origins that the retry partition holds unfinished, by that commit; of open transactions too."""
        found = ack_map.decode(retry.metadata, retry.offset or 0) if retry.metadata else None
        runs = found.runs if found is not None else ()
        waiting = set()
        for offset, info in self._retries(number):
            if offset >= (retry.offset or 0) and not any(start <= offset < end for start, end in runs):
                waiting.add(info.origin)
        return waiting

    def _retries(self, number: int) -> list[tuple[int, RetryInfo]]:
        log = self._cluster.log(TopicPartition(RETRY, number))
        infos = [
            (record.offset() or 0, decode(dict(record.headers() or ())[RETRY_HEADER]))
            for record in log._records
        ]
        return [(offset, info) for offset, info in infos if isinstance(info, RetryInfo)]

    # What the base class asks

    def subscribed(self, partition: int, position: int) -> None:
        log = self.logs[partition]
        log.before = log.covered(position, "")
        log.durable = set(log.before)

    def begins(
        self,
        owner: Ownership,
        record: Record,
        attempt: int,
        together: Collection[int],
        *,
        valid: bool,
        alone: bool,
        now: float = 0.0,
    ) -> None:
        self.look(now)
        log, offset, key = self.logs[owner.partition], record.offset(), record.key()
        where = f"{owner!r} offset {offset} key {key!r} attempt {attempt}"
        promise(log.keys.get(offset, b"?") == key, f"{where}: no such record was published")
        owner.begun[offset] += 1
        log.delivered.add(offset)
        if not valid:
            return
        promise(offset not in log.durable, f"durable: {where} begins; the log knows it is finished")
        dues = [info.due for _, info in self._retries(owner.partition)[-200:] if info.origin == offset]
        promise(not dues or dues[-1] <= now * 1000 + 1, f"due: {where} begins at {now}, due {dues[-1:]}")
        if self.ordered and key is not None:
            self._in_order(owner, log, offset, key, together, where)

    def _in_order(
        self, owner: Ownership, log: Log, offset: int, key: bytes, together: Collection[int], where: str
    ) -> None:
        dead = self.dead[owner.partition]
        for earlier in log.of_key[key]:
            if earlier >= offset:
                break
            done = earlier in log.gone or earlier in dead or earlier in together
            done = done or earlier in owner.finished
            promise(done or earlier in log.durable, f"order: {where} begins before {earlier} is acked")

    def commit_made(self, owner: Ownership, commit: Commit | CommitBoth, known: Collection[int]) -> None:
        promise(isinstance(commit, CommitBoth), f"{owner!r} commits one half: {commit}")
        if isinstance(commit, CommitBoth):
            for text in (commit.metadata, commit.retry.metadata):
                promise(len(text) <= ack_map.CAPACITY, f"I5: {owner!r}: {len(text)} characters")

    def commit_stored(self, owner: Ownership, commit: Commit | CommitBoth) -> None:
        """Looked at by `look`."""

    def left(self, partition: int, known: Collection[int]) -> None:
        """A partition may be given up without a last word, if a relocation isn't answered."""

    def check_nothing_lost(self, starts: Sequence[int]) -> None:  # type: ignore[override]
        for number, (log, start) in enumerate(zip(self.logs, starts, strict=True)):
            lost = {at for at in log.keys if at >= start} - log.acked - log.gone - self.dead[number]
            promise(not lost, f"lost: {sorted(lost)} of {number} were never acked")
