"""Stores the work of tasks under one transactional id: one transaction at a time, and the next one beside a large.

Theory. All tasks that are well share one id, and go together in a transaction. A task whose transaction failed goes
alone for a while, under another id: its writes may be refused, or get no answer for seconds, and no other task waits
for them.

Rules
1. An id whose transaction got no answer is given up, because the log may hold it up for as long as a partition of that
   transaction has no leader. Another one takes its place.
2. The writes of a transaction whose ending isn't known count once the log has fenced its id.
3. Work that was decided after a transaction that wasn't stored is refused with it.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from typing import NamedTuple

from kafka_pubsub.errors import BrokerUnavailable, DeadlineExceeded, PubSubError
from kafka_pubsub.log.ports import Backend
from kafka_pubsub.model import Committed, Ending, Membership, NewRecord, Outcome, TopicPartition
from kafka_pubsub.services.role import Task, Work
from kafka_pubsub.services.transactions import ServiceTransactions

__all__ = ["Ended", "Part", "Sending", "Sendings", "Sent", "Share", "bytes_of", "explain", "got_no_answer"]

#: Ids for tasks that go alone; where more do, some of them share one.
_APART = 8
#: Records of a transaction so large that the next is decided while it is under way: smaller ones would be late.
_LARGE = 500
#: Seconds that the last commit of tasks that are given up may take; without it the next owner only fences our id.
_FAREWELL = 10.0


class Share(NamedTuple):
    """The partitions that one task serves: the same one of all topics of a set."""

    topics: tuple[str, ...]
    number: int

    @property
    def places(self) -> list[TopicPartition]:
        """The partitions, in the order of the topics."""
        return [TopicPartition(topic, self.number) for topic in self.topics]


class Part(NamedTuple):
    """One task's part of a transaction."""

    share: Share
    task: Task
    work: Work

    @property
    def positions(self) -> Mapping[TopicPartition, Committed]:
        """The committed positions, by partition."""
        places = self.share.places
        return {places[topic]: to for topic, to in self.work.positions.items()}


class Sent(NamedTuple):
    """A transaction that is under way."""

    outcome: Future[Outcome]
    parts: Sequence[Part]
    records: Sequence[NewRecord]
    #: Seconds of a monotonic clock.
    began: float

    @property
    def bytes(self) -> int:
        """How many its values have."""
        return bytes_of(self.records)

    def refused(self) -> Iterator[tuple[Part, int, PubSubError]]:
        """Yields the records that weren't taken: their part, their number in it, and why."""
        at, outcome = 0, self.outcome.result()
        silent = dict.fromkeys(outcome.silent, outcome.reason or PubSubError("no answer in time"))
        for part in self.parts:
            for number, reason in {**outcome.refused, **silent}.items():
                if at <= number < at + len(part.work.records):
                    yield part, number - at, reason
            at += len(part.work.records)


class Ended(NamedTuple):
    """Transactions that have ended alike: one that was stored, or one that failed with the work after it.

    `settled`: whether the log can say by now which of their positions are committed.
    """

    outcome: Outcome
    sent: Sequence[Sent]
    settled: Callable[[], bool]


class Sending:
    """Transactions under one id, which changes when one gets no answer."""

    def __init__(self, backend: Backend, name: str) -> None:
        self._backend, self._name, self._count = backend, name, 0
        self._transactions = ServiceTransactions(backend, name)
        # Given up; the log hasn't ended all of their transactions yet.
        self._given_up: list[ServiceTransactions] = []
        #: At most two: the one that is under way and the next.
        self.sent: deque[Sent] = deque()

    @property
    def id(self) -> str:
        """The transactional id of the next transaction."""
        return self._transactions.id

    @property
    def busy(self) -> bool:
        """Whether a transaction is under way."""
        return bool(self.sent)

    @property
    def free(self) -> bool:
        """Whether another transaction may be decided."""
        return not self.sent or (len(self.sent) == 1 and len(self.sent[0].records) >= _LARGE)

    def send(self, parts: Sequence[Part], membership: Membership, *, careful: bool = False) -> None:
        """Begins a transaction; `careful` (default False): if it fails, its outcome names the record that failed."""
        records = [record for part in parts for record in part.work.records]
        positions = {place: to for part in parts for place, to in part.positions.items()}
        outcome = self._transactions.send(records, positions, membership, careful=careful)
        self.sent.append(Sent(outcome, parts, records, time.monotonic()))

    def take(self, *, wait: bool) -> Ended | None:
        """Returns the transactions that have ended; `wait`: waits for those under way."""
        if not self.sent or not (wait or self.sent[0].outcome.done()):
            return None
        first = self.sent.popleft()
        outcome = first.outcome.result()
        if outcome.ending is Ending.STORED:
            return Ended(outcome, [first], _is_settled)
        failed = [first, *self.sent]
        for later in self.sent:
            later.outcome.result()
        self.sent.clear()
        settled = _is_settled
        if outcome.ending is Ending.UNKNOWN:
            settled = self._give_up()
        elif got_no_answer(outcome):
            self._give_up()
        else:
            self._transactions.go_on()
        return Ended(outcome, failed, settled)

    def commit_last_positions(
        self, positions: Mapping[TopicPartition, Committed], membership: Membership
    ) -> Future[Outcome]:
        """Begins a transaction of positions alone, when nothing is under way."""
        return self._transactions.send((), positions, membership)

    def close(self) -> None:
        """Ends after the work that was sent."""
        for each in self._given_up:
            each.hurry()
        for each in (*self._given_up, self._transactions):
            each.close()

    def _give_up(self) -> Callable[[], bool]:
        self._count += 1
        given_up = self._transactions
        self._transactions = ServiceTransactions(self._backend, f"{self._name}-{self._count}")
        self._given_up = [each for each in self._given_up if not each.ended]
        self._given_up.append(given_up)
        given_up.give_up()
        return lambda: given_up.ended


class Sendings:
    """The ids of a service: one of all tasks that are well, and others for those that go alone."""

    def __init__(self, backend: Backend, name: str) -> None:
        self._backend, self._name = backend, name
        self.together = Sending(backend, name)
        #: For those that go alone.
        self.apart: list[Sending] = []
        #: Those that go alone, and under which id.
        self.alone: dict[Share, Sending] = {}

    @property
    def all(self) -> list[Sending]:
        """The one of all first."""
        return [self.together, *self.apart]

    def of(self, share: Share) -> Sending:
        """Returns the sender that writes for a task."""
        return self.alone.get(share, self.together)

    def set_apart(self, share: Share) -> None:
        """The task goes alone from now on, under the id that the fewest others use."""
        if share in self.alone:
            return
        users = [*self.alone.values()]
        if len(self.apart) < _APART and all(each in users for each in self.apart):
            self.apart.append(Sending(self._backend, f"{self._name}-apart-{len(self.apart)}"))
        self.alone[share] = min(self.apart, key=users.count)

    def commit_last_positions(
        self, positions: Mapping[Share, Mapping[int, Committed]], membership: Membership
    ) -> None:
        """Commits the last positions of tasks that are given up, by the number of the topic. Nothing is under way."""
        outcomes = []
        for sending in self.all:
            found = {
                share.places[topic]: to
                for share, some in positions.items()
                if self.of(share) is sending
                for topic, to in some.items()
            }
            if found:
                outcomes.append(sending.commit_last_positions(found, membership))
        wait(outcomes, _FAREWELL)

    def is_under_way(self, share: Share) -> bool:
        """Whether something of a task is."""
        return any(part.share == share for each in self.all for sent in each.sent for part in sent.parts)

    def close(self) -> None:
        """Ends after the work that was sent."""
        for each in self.all:
            each.close()


def _is_settled() -> bool:
    return True


def bytes_of(records: Sequence[NewRecord]) -> int:
    """Returns how many bytes the values of records have."""
    return sum(len(each.value or b"") for each in records)


def got_no_answer(outcome: Outcome) -> bool:
    """Returns whether a transaction wasn't stored because the log didn't answer in time."""
    return isinstance(outcome.reason, BrokerUnavailable | DeadlineExceeded)


def explain(ended: Ended) -> PubSubError:
    """Returns why a transaction wasn't stored, with the topic that refused a record of it."""
    outcome = ended.outcome
    reason = outcome.reason or PubSubError("a transaction wasn't stored")
    if not outcome.refused:
        return reason
    number = min(outcome.refused)
    topic = ended.sent[0].records[number].topic
    return type(reason)(f"topic {topic!r} refuses a record: {outcome.refused[number]}")
