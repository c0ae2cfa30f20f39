"""The loop of a service: a member of its group that reads, lets its tasks decide, and stores what they decided.

Rules
1. Partition p of a set of topics is served only while p of every topic of the set is held (`range` gives them
   together; sets of one topic are dealt out one by one); else nothing of it is read.
2. A task begins with what is committed, once no transaction of an earlier owner is open. An owner that gives a
   partition up in order says so in its last commit; one that was killed is fenced by the id that its commits name.
3. One transaction at a time, with the work of all tasks. While it is under way reading goes on, and after a large one
   the next is decided already. If one isn't stored, neither is the next, and all tasks are made anew.
4. When partitions go, the transactions that are under way are waited for; a task is never asked after that.
5. Positions are committed in transactions only. A plain commit that a dead coordinator didn't answer could arrive
   later, under a newer membership, and take the positions of the next owner back.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, wait
from functools import partial
from typing import NamedTuple

from kafka_pubsub.client.clocks import steady_milliseconds
from kafka_pubsub.client.trouble_log import TroubleLog
from kafka_pubsub.config import Batching
from kafka_pubsub.errors import PubSubError
from kafka_pubsub.model import (
    Committed,
    Ending,
    NewRecord,
    Outcome,
    ReadFrom,
    StoredRecord,
    TopicPartition,
)
from kafka_pubsub.ports import Backend, LogWriter
from kafka_pubsub.services.metrics import ServiceMetrics
from kafka_pubsub.services.role import Beginning, Role, Task, Work
from kafka_pubsub.services.transactions import ServiceTransactions
from kafka_pubsub.services.trimming import Trimming

__all__ = ["Engine"]

_log = logging.getLogger("kafka_pubsub.service")

#: Records of one read, and of one task's part in a transaction.
_READ, _WORK = 2000, 4000
#: Records of a transaction so large that the next is decided while it is under way: smaller ones would be late.
_LARGE = 500
#: Seconds that a read waits at most; while there is work for the next transaction, until the last one is over.
_WAIT, _SOON = 0.1, 0.001
#: Bytes of records that wait in all tasks, and in one log at least and at most. A log that is full is fetched anew.
_BUFFERS, _LEAST, _ROOM = 64 * 1024 * 1024, 64 * 1024, 2 * 1024 * 1024
#: Seconds that fencing a dead owner may take, and asking for what is committed.
_BEGINNING = 30.0
#: Seconds that the last commit of what is given up may take: without it the next owner only fences our id.
_FAREWELL = 10.0
#: Seconds after a failed transaction before the next: doubled up to the second while they fail.
_PAUSE, _LONGEST_PAUSE = 0.05, 5.0
#: Seconds between two rounds of `append`: tasks append together, and each round costs the broker a fetch of all logs.
_APPEND = 0.005
#: Seconds between two looks how far logs were read that tasks wait for.
_LOOK = 0.02


class _Share(NamedTuple):
    """What one task serves: a partition of all topics of a set."""

    topics: tuple[str, ...]
    number: int

    @property
    def places(self) -> list[TopicPartition]:
        return [TopicPartition(topic, self.number) for topic in self.topics]


class _Sent(NamedTuple):
    outcome: Future[Outcome]
    #: The tasks by what they serve, and the work of each.
    parts: Sequence[tuple[_Share, Task, Work]]
    positions: Mapping[TopicPartition, Committed]
    records: int


class Engine:
    """One member of the service's group; `turn` is one step of its loop."""

    def __init__(
        self,
        backend: Backend,
        role: Role,
        metrics: ServiceMetrics,
        clock: Callable[[], int] = steady_milliseconds,
    ) -> None:
        self._role, self._metrics, self._clock = role, metrics, clock
        self._is_moved = backend.clock is not None
        self._troubles = TroubleLog(_log)
        alone = all(len(topics) == 1 for topics in role.sets)
        self._reader = backend.reader(role.group, f"kafka_pubsub-{role.name}", spread=alone)
        self._writer: LogWriter = backend.writer(Batching(max_latency=0.0), 1_000_000)
        self._transactions = ServiceTransactions(backend, f"{role.group}-{uuid.uuid4().hex}")
        self._trimming = Trimming(backend.admin)
        # By topic: its set, and its number in the set.
        self._sets: dict[str, tuple[str, ...]] = {}
        self._numbers: dict[str, int] = {}
        #: By what they serve; empty: nothing is ours.
        self.tasks: dict[_Share, Task] = {}
        # At most two: the one that is under way and the next.
        self._sent: deque[_Sent] = deque()
        self._paused: set[TopicPartition] = set()
        self._failures = 0
        # Records weren't stored and are to be written again: positions alone that are stored heal nothing.
        self._unstored = False
        self._not_before = 0.0
        self._look_at = 0.0
        self._append_at = 0.0
        self._fatal: PubSubError | None = None
        # A transaction failed, so the tasks must be made anew.
        self._stale = False
        #: Whether the group has given us our share.
        self.joined = False
        #: As of the last turn: when a task wants to be asked next, in milliseconds (None: when something comes), and
        #: whether one waits to learn how far a log was read, or to read what it appended.
        self.wakeup_at: int | None = None
        self.unsure = False

    def start(self) -> None:
        """Joins the group at the next turn; called again, with the topics that the role has by then."""
        self._sets = {topic: tuple(topics) for topics in self._role.sets for topic in topics}
        self._numbers = {topic: number for topics in self._role.sets for number, topic in enumerate(topics)}
        self._metrics.unneeded = self.joined = not self._sets
        if self._sets:
            self._reader.subscribe(list(self._sets), self)

    def turn(self, *, take: bool = True) -> None:
        """One step: settle, store, write, read. Without `take` nothing new is begun."""
        if self._fatal is not None:
            raise self._fatal
        if take and self._role.grow():
            self.start()
        if not self._sets:
            time.sleep(_WAIT)
            return
        self._take_outcome(wait=False)
        if self._stale:
            self._take_outcome(wait=True)
            self._begin_again()
        if take and self._free and time.monotonic() >= self._not_before:
            self._send()
        self._append()
        records = self._reader.read(_READ, self._patience())
        self._distribute(records)
        if not records or time.monotonic() >= self._look_at:
            self._look()
        if records or self._paused:
            self._regulate()

    @property
    def outdated(self) -> bool:
        """Whether a new engine should take over: the role's topics have changed."""
        return self._role.outdated()

    @property
    def busy(self) -> bool:
        """Whether a transaction is under way."""
        return bool(self._sent)

    @property
    def _free(self) -> bool:
        """Whether another transaction may be decided."""
        return not self._sent or (len(self._sent) == 1 and self._sent[0].records >= _LARGE)

    def close(self, *, trim: bool = True) -> None:
        """Leaves the group, after what is under way has ended; `trim`: what was handled is deleted once more."""
        try:
            self._reader.close()
        finally:
            self._transactions.close()
            self._trimming.close(trim=trim)
            self._writer.close()

    # -- the group's events, inside a read ---------------------------------------------------------------------

    def assigned(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, ReadFrom]:
        """Begins the tasks of the partitions that came as a whole."""
        mine = set(partitions)
        try:
            self._begin([share for share in self._shares(partitions) if mine.issuperset(share.places)])
        except PubSubError as error:
            self._fatal = error
            self.tasks = {}
        self._paused -= mine
        self.joined = True
        self._metrics.partitions = len(self.tasks)
        return {
            place: position
            for share, task in self.tasks.items()
            for place, position in zip(share.places, task.positions, strict=True)
            if place in mine
        }

    def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """Gives partitions up when what is under way is stored or not."""
        self._take_outcome(wait=True)
        if not self._stale:
            self._say_farewell(self._shares(partitions))
        self._forget(partitions)

    def lost(self, partitions: Sequence[TopicPartition]) -> None:
        """Gives partitions up; what is under way is refused by the group."""
        self._forget(partitions)

    def failed(self, partition: TopicPartition | None, error: PubSubError, fatal: bool) -> None:
        """The log reported an error."""
        self._metrics.error = str(error)
        if fatal:
            self._fatal = self._fatal or error
        else:
            self._troubles.tell(error, "%s: %s", self._role.name, error)

    def _say_farewell(self, shares: Iterable[_Share]) -> None:
        found = {
            share.places[topic]: to
            for share in shares
            if share in self.tasks
            for topic, to in self.tasks[share].farewell().items()
        }
        membership = self._reader.membership()
        if not found or membership is None:
            return
        outcome = self._transactions.send((), found, membership)
        if wait([outcome], _FAREWELL).done and outcome.result().ending is not Ending.STORED:
            self._transactions.go_on()

    def _forget(self, partitions: Sequence[TopicPartition]) -> None:
        for share in self._shares(partitions):
            self.tasks.pop(share, None)
        self._paused -= set(partitions)
        # What is left of a failed transaction concerns the other tasks, if there are any.
        self._stale = self._stale and bool(self.tasks)
        self._unstored = self._unstored and bool(self.tasks)
        self._metrics.partitions = len(self.tasks)

    # -- beginning ---------------------------------------------------------------------------------------------

    def _begin(self, shares: Sequence[_Share]) -> None:
        places = [place for share in shares for place in share.places]
        committed = self._committed(places, shares)
        ranges = self._reader.log_ranges(places)
        ends = self._reader.high_watermarks(places)
        for share in shares:
            beginnings = [
                Beginning(committed[place], ranges[place][0], ends[place]) for place in share.places
            ]
            self.tasks[share] = self._role.begin(
                share.topics, share.number, beginnings, self._transactions.id
            )

    def _committed(
        self, places: Sequence[TopicPartition], shares: Sequence[_Share]
    ) -> Mapping[TopicPartition, Committed]:
        if not places:
            return {}
        unstable = self._reader.committed_unstable(places)
        writers = {self._role.writer_of([unstable[place] for place in share.places]) for share in shares}
        for writer in writers - {None, self._transactions.id}:
            _log.warning("%s: ending what a killed service may have left open: %s", self._role.name, writer)
            self._transactions.fence(str(writer)).result(_BEGINNING)
        return self._reader.committed(places, _BEGINNING)

    def _begin_again(self) -> None:
        """Makes all tasks anew from what is committed."""
        shares = sorted(self.tasks)
        self._begin(shares)
        for share in shares:
            for place, position in zip(share.places, self.tasks[share].positions, strict=True):
                self._reader.seek(place, position)
        self._reader.resume(list(self._paused))
        self._paused = set()
        self._stale = False

    # -- transactions ------------------------------------------------------------------------------------------

    def _send(self) -> None:
        membership = self._reader.membership()
        if membership is None:
            return
        records: list[NewRecord] = []
        parts: list[tuple[_Share, Task, Work]] = []
        positions: dict[TopicPartition, Committed] = {}
        for share, task in self._in_turn():
            try:
                work = task.work(min(_WORK, self._role.at_once - len(records)))
            except PubSubError as error:
                self._fail(error, str(error))
                return
            if work is None:
                continue
            records += work.records
            parts.append((share, task, work))
            positions |= {share.places[topic]: to for topic, to in work.positions.items()}
            if len(records) >= self._role.at_once:
                break
        if parts:
            outcome = self._transactions.send(records, positions, membership)
            self._sent.append(_Sent(outcome, parts, positions, len(records)))

    def _in_turn(self) -> list[tuple[_Share, Task]]:
        """The tasks, each time another one first."""
        tasks = list(self.tasks.items())
        first = self._metrics.transactions % len(tasks) if tasks else 0
        return tasks[first:] + tasks[:first]

    def _take_outcome(self, *, wait: bool) -> None:
        """Settles the transactions that have ended."""
        while self._sent and (wait or self._sent[0].outcome.done()):
            sent = self._sent.popleft()
            outcome = sent.outcome.result()
            if outcome.ending is Ending.STORED:
                self._settle(sent)
                continue
            self._metrics.aborted += 1
            self._unstored = self._unstored or sent.records > 0
            self._refuse(sent, outcome)
            self._fail(outcome.reason, _explain(sent, outcome))
            # What was decided after it was refused.
            for later in self._sent:
                later.outcome.result()
            self._sent.clear()
            self._transactions.go_on()

    def _settle(self, sent: _Sent) -> None:
        self._failures = 0
        self._metrics.stored(sent.records)
        self._unstored = self._unstored and not sent.records
        if not self._unstored:
            self._metrics.error = ""
        for share, task, work in sent.parts:
            task.stored(work)
            self._trim(share, sent.positions)

    def _fail(self, error: PubSubError | None, reason: str) -> None:
        """Has all tasks made anew, after a moment: what they decided isn't stored."""
        self._metrics.error = reason
        pause = min(_LONGEST_PAUSE, _PAUSE * 2**self._failures)
        self._failures += 1
        self._not_before = time.monotonic() + pause
        text = "%s: a transaction wasn't stored: %s"
        self._troubles.tell(error or PubSubError(reason), text, self._role.name, reason)
        self._stale = True

    def _refuse(self, sent: _Sent, outcome: Outcome) -> None:
        at = 0
        for _, task, work in sent.parts:
            for number, reason in outcome.refused.items():
                if at <= number < at + len(work.records):
                    task.refuse(work, number - at, str(reason))
            at += len(work.records)

    def _trim(self, share: _Share, positions: Mapping[TopicPartition, Committed]) -> None:
        places = share.places
        mine = {topic: positions[place] for topic, place in enumerate(places) if place in positions}
        for topic, offset in self._role.trimmable(mine).items():
            self._trimming.allow(places[topic], offset, kept=topic in self._role.kept)

    # -- reading -----------------------------------------------------------------------------------------------

    def _append(self) -> None:
        at, now = time.monotonic(), self._clock()
        for task in self.tasks.values() if at >= self._append_at else ():
            found = task.append(now)
            if found is not None:
                self._append_at = at + _APPEND
                try:
                    report = partial(self._report, task)
                    self._writer.append(found.topic, found.value, found.key, found.headers, report)
                except BufferError:
                    break  # it is asked for again
        self._writer.poll(0)

    def _report(self, task: Task, error: object, record: StoredRecord) -> None:
        """Tells a task that its record is stored; what is written outside of transactions may be lost."""
        if error is None:
            task.appended(record, self._clock())

    def _patience(self) -> float:
        """Seconds that a read may wait."""
        times = [at for task in self.tasks.values() if (at := task.wakeup_at()) is not None]
        self.wakeup_at = min(times, default=None)
        if self._is_moved:
            tasks = self.tasks.values()
            self.unsure = any(task.awaits() or any(True for _ in task.unsure()) for task in tasks)
        if self._sent:
            return _SOON
        pause = self._append_at - time.monotonic()
        if pause > 0 and min(times, default=1) > 0:
            return pause
        if not times:
            return _WAIT
        return max(0.0, min(_WAIT, (min(times) - self._clock()) / 1000))

    def _distribute(self, records: Sequence[StoredRecord]) -> None:
        found: dict[tuple[str | None, int | None], list[StoredRecord]] = {}
        now = self._clock()
        for record in records:
            found.setdefault((record.topic(), record.partition()), []).append(record)
        for (topic, number), some in found.items():
            if topic is None or number is None:
                continue
            task = self.tasks.get(_Share(self._sets[topic], number))
            if task is None:
                continue
            again = task.receive(self._numbers[topic], some, now)
            if again is not None:
                self._reader.seek(TopicPartition(topic, number), again)

    def _look(self) -> None:
        """Tells tasks how far logs were read of which they wait to learn it."""
        self._look_at = time.monotonic() + _LOOK
        unsure = {
            share.places[topic]: (task, topic)
            for share, task in self.tasks.items()
            for topic in task.unsure()
        }
        for place, position in self._reader.positions(list(unsure)).items() if unsure else ():
            task, topic = unsure[place]
            task.reach(topic, position.offset)

    def _regulate(self) -> None:
        """Stops reading logs of which enough waits in memory, and goes on where there is room."""
        logs = sum(len(share.topics) for share in self.tasks)
        room = max(_LEAST, min(_ROOM, _BUFFERS // logs)) if logs else _ROOM
        full = self._which(lambda task: task.full(room))
        pause = full - self._paused
        if pause:
            self._reader.pause(list(pause))
        # Half of the room may be used up before reading goes on: each beginning costs a fetch.
        still = self._which(lambda task: task.full(room // 2)) if self._paused else set()
        resume = self._paused - still
        self._paused = (self._paused | pause) - resume
        for place in resume:
            task = self.tasks.get(_Share(self._sets[place.topic], place.partition))
            if task is not None:
                self._reader.seek(place, task.positions[self._numbers[place.topic]])
        if resume:
            self._reader.resume(list(resume))

    def _which(self, topics_of: Callable[[Task], Iterable[int]]) -> set[TopicPartition]:
        return {share.places[topic] for share, task in self.tasks.items() for topic in topics_of(task)}

    def _shares(self, partitions: Iterable[TopicPartition]) -> list[_Share]:
        """What these partitions belong to, in order."""
        return sorted({_Share(self._sets[topic], number) for topic, number in partitions})


def _explain(sent: _Sent, outcome: Outcome) -> str:
    """Returns why a transaction wasn't stored, with the topic that refused a record of it."""
    if not outcome.refused:
        return str(outcome.reason)
    number = min(outcome.refused)
    records = [record for _, _, work in sent.parts for record in work.records]
    return f"topic {records[number].topic!r} refuses a record: {outcome.refused[number]}"
