"""The `LogReader` port for the in-memory Kafka: a member of a group.

Theory: each `read` takes at most one step towards membership (learn that a rebalance is open, give up and join;
later, learn the assignment), then returns records. So a simulation that calls `read(n, 0)` sees every state between
two steps, and with a real clock the steps follow each other while `read` waits.

Rules
1. The listener's methods run inside `read` and `close`, never under the cluster's lock.
2. A member that made no call for too long gets `lost`, once, before it joins again as a new one; or `revoked`, if
   it was asked to give up before it was removed (a commit inside it is refused).
3. An assigned partition without a position is never read; one whose position isn't in the log is reported to
   `failed` once, as fatal, and isn't read until a `seek`.
4. As with Kafka's client, an assignment may be empty: `assigned` gets it, and `revoked` or `lost` end it like any
   other. A pause ends with the assignment.
5. While a late commit is unanswered no other is sent, as by Kafka's adapter. It is answered when it arrives.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Protocol

from kafka_pubsub.errors import BrokerUnavailable, DeadlineExceeded, FailedPrecondition, NotFound, PubSubError
from kafka_pubsub.log.memory.cluster import MemoryCluster
from kafka_pubsub.log.memory.faults import FaultPlan, RequestOutcome
from kafka_pubsub.log.memory.groups import Standing
from kafka_pubsub.log.memory.record import MemoryRecord
from kafka_pubsub.log.ports import LogReader
from kafka_pubsub.model import (
    Answered,
    CommitAnswers,
    Committed,
    LogEnd,
    Membership,
    ReadFrom,
    TopicPartition,
)

__all__ = ["MemoryReader"]

_NOWHERE = Committed(None, "")

#: Seconds to wait for an open transaction, as in Kafka's adapter.
_COMMITTED_PATIENCE = 30.0


class Listener(Protocol):
    """The client's rebalance listener."""

    def assigned(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, ReadFrom]:
        """Takes new partitions; returns where to read each from."""
        ...

    def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """Gives up partitions; commits are still accepted until this returns."""
        ...

    def lost(self, partitions: Sequence[TopicPartition]) -> None:
        """Takes note of partitions that are gone already."""
        ...

    def failed(self, partition: TopicPartition | None, error: PubSubError, fatal: bool) -> None:
        """Takes an error that the log reported."""
        ...


class MemoryReader(LogReader):
    """A `LogReader` in memory."""

    def __init__(
        self,
        cluster: MemoryCluster,
        faults: FaultPlan,
        group: str,
        client: str,
        session: float,
        *,
        spread: bool = False,
    ) -> None:
        self._cluster = cluster
        self._faults = faults
        self._group = group
        self._client = client
        self._session, self._spread = session, spread
        self._topics: tuple[str, ...] = ()
        self._listener: Listener | None = None
        self._closed = False
        # The membership as this reader knows it; the coordinator's may be newer. None: not a member.
        self._member: str | None = None
        self._generation = -1
        # The same as of the last assignment or rise of the epoch; None: there is none, or it was ended.
        self._membership: Membership | None = None
        # The partitions that the listener got, in the order of the next reads; None: none since the last end.
        self._share: list[TopicPartition] | None = None
        # Next offset to read; a partition that is assigned and not here isn't read.
        self._positions: dict[TopicPartition, int] = {}
        self._paused: set[TopicPartition] = set()
        # The number of commits that haven't arrived yet.
        self._late = 0
        # Whether its thread waits inside `read`: then its caller has handled everything that was read before.
        self._waiting = False

    def subscribe(self, topics: Sequence[str], listener: Listener) -> None:
        """Joins the group at the next `read`; called again with other topics, it joins anew."""
        self._check_open()
        self._topics, self._listener = tuple(topics), listener
        if self._cluster.moved is not None:
            self._cluster.moved.enter(self)
        if self._member is not None:
            with self._cluster.change():
                self._cluster.group(self._group).rebalance()

    def read(self, max_records: int, timeout: float) -> Sequence[MemoryRecord]:
        """Returns up to `max_records`; waits up to `timeout` seconds for the first, where calls wait."""
        self._check_open()
        listener = self._listener
        if listener is None:
            raise FailedPrecondition("read before subscribe: the reader has no topics yet")
        deadline = self._cluster.real.now() + timeout
        wakes = self._cluster.wakes
        limit = max(0, min(max_records, self._faults.read_limit(self._group, self._client, max_records)))
        while True:
            seen = self._cluster.version
            moved = self._step(listener)
            records, failures = self._fetch(limit)
            self._report(listener, failures)
            if records or failures or not self._cluster.blocking:
                return records
            if self._cluster.real.now() >= deadline or self._cluster.wakes != wakes:
                return records
            if not moved:
                self._wait(seen, deadline)

    def committed(
        self, partitions: Sequence[TopicPartition], timeout: float | None = None
    ) -> Mapping[TopicPartition, Committed]:
        """Returns the group's stored positions; waits for open transactions where calls wait."""
        self._may_ask("committed")
        patience = _COMMITTED_PATIENCE if timeout is None else timeout
        with self._cluster.changed:
            offsets = self._cluster.stored(self._group, partitions, patience)
            return {partition: offsets.get(partition, _NOWHERE) for partition in partitions}

    def committed_unstable(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, Committed]:
        """Returns the positions stored before the transactions that are open now."""
        self._may_ask("committed_unstable")
        with self._cluster.changed:
            offsets = self._cluster.group(self._group).offsets
            return {partition: offsets.get(partition, _NOWHERE) for partition in partitions}

    def membership(self) -> Membership | None:
        """Returns the membership as of the last assignment or rise of the epoch."""
        return self._membership

    def positions(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, LogEnd]:
        """Returns positions below which every record was read."""
        with self._cluster.changed:
            mine = {each: self._positions[each] for each in partitions if each in self._positions}
            return {each: LogEnd(at, self._cluster.log(each).epoch_below(at)) for each, at in mine.items()}

    def at_end(self, partitions: Sequence[TopicPartition]) -> Set[TopicPartition]:
        """Returns the partitions of which all committed records were read."""
        with self._cluster.changed:
            return {p for p in partitions if self._positions.get(p) == self._cluster.log(p).stable_end}

    def readable_ends(
        self, partitions: Sequence[TopicPartition], timeout: float
    ) -> Mapping[TopicPartition, LogEnd]:
        """Returns where committed records end in each; leaves out those whose topic is gone."""
        self._may_ask("readable_ends")
        with self._cluster.changed:
            names = set(self._cluster.names())
            logs = {each: self._cluster.log(each) for each in partitions if each.topic in names}
            return {each: LogEnd(log.stable_end, log.epoch) for each, log in logs.items()}

    def high_watermarks(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Returns the next offset to be written of each, open transactions included."""
        self._may_ask("high_watermarks")
        with self._cluster.changed:
            return {partition: self._cluster.log(partition).end for partition in partitions}

    def commit(self, positions: Mapping[TopicPartition, Committed], answered: Answered) -> None:
        """Commits with the member id and generation that this reader knows; a late commit is answered late."""
        self._check_open()
        if self.unanswered():
            waiting = BrokerUnavailable(
                "injected: the commit before isn't answered yet; nothing was committed"
            )
            answered(dict.fromkeys(positions, waiting))
            return
        outcome = self._faults.commit(self._group, self._client, positions)
        if outcome is RequestOutcome.REFUSED:
            refusal = BrokerUnavailable(
                "injected: the coordinator couldn't be reached; nothing was committed"
            )
            answered(dict.fromkeys(positions, refusal))
            return
        send = functools.partial(self._send, self._member, self._generation, dict(positions))
        unknown = dict.fromkeys(positions, DeadlineExceeded("injected: no answer to the commit came"))
        if outcome is RequestOutcome.LATE:
            lateness = self._faults.lateness()
            with self._cluster.change() as now:
                self._late += 1
                self._cluster.later.at(now + lateness, lambda: self._arrives(send, answered, unknown))
            return
        with self._cluster.changed:  # no thread waits for commits, so none is woken
            answer = send()
        answered(answer if outcome is RequestOutcome.DONE else unknown)

    def _arrives(self, send: Callable[[], object], answered: Answered, unknown: CommitAnswers) -> None:
        self._late -= 1
        send()
        answered(unknown)

    def _send(
        self, member: str | None, generation: int, positions: Mapping[TopicPartition, Committed]
    ) -> Mapping[TopicPartition, PubSubError | None]:
        """Carries out a commit by the state of the group at its arrival."""
        group = self._cluster.group(self._group)
        return group.commit(member, generation, positions, self._cluster.real.now())

    def unanswered(self) -> bool:
        """Returns whether a late commit hasn't been done yet."""
        if not self._late:
            return False
        with self._cluster.changed:
            self._cluster.catch_up()
            return self._late > 0

    def settle(self) -> bool:
        """Returns whether no commit is late; it doesn't wait."""
        return not self.unanswered()

    def log_range(self, partition: TopicPartition) -> tuple[int, int]:
        """Returns the first stored offset, and the next one to be written."""
        self._may_ask("log_range")
        with self._cluster.changed:
            log = self._cluster.log(partition)
            return log.start, log.end

    def reachable_ranges(
        self, partitions: Sequence[TopicPartition], timeout: float
    ) -> Mapping[TopicPartition, tuple[int, int]]:
        """Returns the ranges of the partitions that are there and whose leader answers."""
        self._may_ask("reachable_ranges")
        near = [place for place in partitions if self._faults.away(place) is None]
        with self._cluster.changed:
            names = set(self._cluster.names())
            logs = {place: self._cluster.log(place) for place in near if place.topic in names}
            return {place: (log.start, log.end) for place, log in logs.items()}

    def seek(self, partition: TopicPartition, to: ReadFrom) -> None:
        """Sets the offset from which the partition is read."""
        self._check_open()
        if partition not in self._held:
            raise FailedPrecondition(f"seek: {partition.topic}:{partition.partition} isn't assigned here")
        self._positions[partition] = _offset(to)

    def pause(self, partitions: Sequence[TopicPartition]) -> None:
        """Stops reading partitions until `resume`; ignores those that aren't assigned."""
        self._check_open()
        self._paused.update(partition for partition in partitions if partition in self._held)

    def resume(self, partitions: Sequence[TopicPartition]) -> None:
        """Reads from partitions again."""
        self._check_open()
        self._paused.difference_update(partitions)

    def close(self) -> None:
        """Gives up its partitions (`revoked`, or `lost` if it was removed already) and leaves the group."""
        if self._closed:
            return
        if self._cluster.moved is not None:
            self._cluster.moved.leave(self)
        listener, member = self._listener, self._member
        if listener is not None and member is not None:
            with self._cluster.changed:
                known = member in self._cluster.group(self._group).members
            try:
                self._give_up(listener.revoked if known else listener.lost)
            finally:  # it leaves even if a stream that has failed can't give up its partitions
                with self._cluster.change():
                    self._cluster.group(self._group).leave(member)
        self._closed = True

    # As a sleeper of the clock

    def due_at(self) -> None:
        """Returns None: records come when they are written."""

    def under_way(self, *, callbacks: bool) -> str:
        """Returns that it reads or joins, if it does, or has records to read."""
        with self._cluster.changed:
            group = self._cluster.group(self._group)
            steady = group.is_steady(self._member, self._generation)
            if self._waiting and steady and not any(map(self._has_more, self._positions)):
                return ""
        return f"a member of group {self._group!r} reads"

    def wake(self) -> None:
        """Does nothing: the cluster wakes all that wait."""

    def _has_more(self, partition: TopicPartition) -> bool:
        if partition in self._paused or self._cluster.partitions_of(partition.topic) is None:
            return False
        return self._positions[partition] < self._cluster.log(partition).stable_end

    @property
    def _held(self) -> Sequence[TopicPartition]:
        return self._share or ()

    # Membership

    def _step(self, listener: Listener) -> bool:
        """Takes one step towards membership; returns whether there was one to take."""
        if self._member is None:
            self._join(listener)
            return True
        with self._cluster.changed:
            group = self._cluster.group(self._group)
            standing = group.standing(self._member, self._generation, self._cluster.real.now())
            share = group.assignment(self._member)
            generation = group.generation
        if standing in (Standing.UNKNOWN, Standing.OUSTED):
            self._member, self._generation, self._membership = None, -1, None
            self._give_up(listener.lost if standing is Standing.UNKNOWN else listener.revoked)
        elif standing is Standing.REJOIN:
            self._give_up(listener.revoked)
            self._join(listener)
        elif standing is Standing.ASSIGNED:
            self._generation = generation
            self._take(listener, share)
        elif standing is Standing.RAISED:
            self._generation = generation
            self._membership = Membership(self._group, (self._member, generation))
        return standing not in (Standing.STEADY, Standing.WAITING)

    def _join(self, listener: Listener) -> None:
        with self._cluster.change() as now:
            missing = [topic for topic in self._topics if self._cluster.partitions_of(topic) is None]
            group = self._cluster.group(self._group)
            if self._member is None or self._member in group.members:
                self._member = group.join(
                    self._member, self._client, self._topics, self._session, now, spread=self._spread
                )
        for topic in missing:
            listener.failed(None, NotFound(f"subscribed topic {topic} doesn't exist"), False)

    def _give_up(self, tell: Tell) -> None:
        share, held = self._share, tuple(self._held)
        try:
            if share is not None:
                tell(held)
        finally:
            self._share, self._membership = None, None
            self._positions.clear()
            self._paused.clear()

    def _take(self, listener: Listener, share: Sequence[TopicPartition]) -> None:
        self._share = list(share)
        self._membership = Membership(self._group, (self._member, self._generation))
        starts = listener.assigned(tuple(share))
        self._positions = {at: _offset(start) for at, start in starts.items() if at in self._held}

    # Records

    def _fetch(self, limit: int) -> tuple[list[MemoryRecord], list[tuple[TopicPartition, PubSubError]]]:
        records: list[MemoryRecord] = []
        failures: list[tuple[TopicPartition, PubSubError]] = []
        with self._cluster.changed:
            for partition in tuple(self._held):
                position = self._positions.get(partition)
                if position is None or partition in self._paused or len(records) >= limit:
                    continue
                try:
                    batch = self._read_partition(partition, position, limit - len(records))
                except PubSubError as error:
                    del self._positions[partition]
                    failures.append((partition, error))
                    continue
                room = limit - len(records)
                if batch:
                    records.extend(batch)
                    self._positions[partition] = (batch[-1].offset() or 0) + 1
                if len(batch) < room:
                    # Every record was read; markers and holes at the end count as read too.
                    stable = self._cluster.log(partition).stable_end
                    self._positions[partition] = max(self._positions[partition], stable)
        # The next read begins with another partition, so that a full one doesn't keep the others from being read.
        if records and self._share:
            self._share.append(self._share.pop(0))
        return records, failures

    def _read_partition(self, partition: TopicPartition, position: int, limit: int) -> Sequence[MemoryRecord]:
        log = self._cluster.log(partition)
        if not log.start <= position <= log.end:
            raise FailedPrecondition(
                f"offset {position} of {partition.topic}:{partition.partition} isn't in the log "
                f"({log.start} to {log.end}): it was deleted, or never written"
            )
        return log.read(position, limit)

    def _report(self, listener: Listener, failures: Sequence[tuple[TopicPartition, PubSubError]]) -> None:
        for partition, error in failures:
            listener.failed(partition, error, True)
        broken = self._faults.read_error(self._group, self._client)
        if broken is not None:
            listener.failed(None, broken, False)

    def _wait(self, seen: int, deadline: float) -> None:
        # A third of the session: a waiting member must call before it counts as dead.
        longest = self._session / 3
        with self._cluster.changed:
            if self._cluster.version == seen:
                self._waiting = True
                self._cluster.wait(min(deadline - self._cluster.real.now(), longest))
                self._waiting = False

    def _may_ask(self, operation: str) -> None:
        self._check_open()
        error = self._faults.request(operation, self._group)
        if error is not None:
            raise error

    def _check_open(self) -> None:
        if self._closed:
            raise FailedPrecondition("the reader is closed")


class Tell(Protocol):
    """A listener's method for partitions that go."""

    def __call__(self, partitions: Sequence[TopicPartition]) -> None:
        """Takes the partitions that go."""
        ...


def _offset(start: ReadFrom) -> int:
    return start if isinstance(start, int) else start.offset
