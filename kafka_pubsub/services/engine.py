"""The loop of a service: a member of its group that reads, lets its tasks decide, and stores their decisions.

Rules
1. Partition p of a set of topics is served only while p of every topic of the set is held (`range` gives them
   together; sets of one topic are dealt out one by one); else nothing of it is read.
2. A task begins at its committed positions, once no transaction of an earlier owner is open. An owner that gives a
   partition up in order says so in its last commit; one that was killed is fenced by the id that its commits name.
3. One transaction at a time, with the work of all tasks. While it is under way reading goes on, and after a large one
   the next is decided already.
4. Trouble with one partition concerns it alone (`troubles.py`). A task that can't begin, raises or isn't stored
   is made anew after a pause, and then goes alone for a while, in transactions of another id. The others go on.
5. When partitions go, the transactions that are under way are waited for; a task is never asked after that.
6. Positions are committed in transactions only. A plain commit that a dead coordinator didn't answer could arrive
   later, under a newer membership, and take the positions of the next owner back.
"""

from __future__ import annotations

import contextlib
import logging
import math
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

from kafka_pubsub.config import Batching
from kafka_pubsub.errors import BrokerUnavailable, DeadlineExceeded, PubSubError
from kafka_pubsub.log.clocks import steady_milliseconds
from kafka_pubsub.log.ports import Backend, LogWriter
from kafka_pubsub.log.trouble_log import TroubleLog
from kafka_pubsub.model import Ending, ReadFrom, StoredRecord, TopicPartition
from kafka_pubsub.services.beginnings import Beginnings, Found
from kafka_pubsub.services.group_record import GroupRecord
from kafka_pubsub.services.metrics import ServiceMetrics
from kafka_pubsub.services.role import Role, Task
from kafka_pubsub.services.sending import (
    Ended,
    Part,
    Sending,
    Sendings,
    Sent,
    Share,
    bytes_of,
    explain,
    got_no_answer,
)
from kafka_pubsub.services.trimming import Trimming
from kafka_pubsub.services.troubles import Trouble

__all__ = ["Engine"]

_log = logging.getLogger("kafka_pubsub.service")

#: Records of one read, and of one task's part in a transaction; bytes of a transaction, the last record left out.
_READ, _WORK, _BYTES = 2000, 4000, 16 * 1024 * 1024
#: Seconds that a read waits at most; while there is work for the next transaction, until the last one is over.
_WAIT, _SOON = 0.1, 0.001
#: Bytes of records that wait in all tasks, and in one log at least and at most. A log that is full is fetched anew.
_BUFFERS, _LEAST, _ROOM = 64 * 1024 * 1024, 64 * 1024, 2 * 1024 * 1024
#: Seconds within which a transaction is so quick that the next may be larger.
_QUICK = 1.0
#: Seconds after which an error of the log that passes by itself is over, unless it was reported again: an outage is,
#: every few seconds.
_FORGET = 60.0
#: Seconds between two rounds of `append` (tasks append together: each round costs the broker a fetch of all logs), and
#: between two looks how far logs were read that tasks wait for.
_APPEND, _LOOK = 0.005, 0.02


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
        name = f"{role.group}-{uuid.uuid4().hex}"
        self._sendings = Sendings(backend, name)
        self._beginnings = Beginnings(backend, self._reader, role, name)
        # Asks for those that are tried again; None: nothing is asked.
        self._asker = ThreadPoolExecutor(1, "kafka_pubsub-service-beginnings")
        self._asked: tuple[Mapping[Share, Trouble], Future[Mapping[Share, Found]]] | None = None
        self._trimming = Trimming(backend.admin)
        self._group_record = GroupRecord(role.name)
        # By topic: its set, and its number in the set.
        self._sets: dict[str, tuple[str, ...]] = {}
        self._numbers: dict[str, int] = {}
        #: By the partitions that they serve; empty: nothing is ours, or nothing could begin yet.
        self.tasks: dict[Share, Task] = {}
        self._wrong = metrics.troubles
        self._wrong.forget_all()
        self._paused: set[TopicPartition] = set()
        self._look_at = 0.0
        self._append_at = 0.0
        # The log's last error, and when it is over; empty: nothing since something was stored.
        self._reported, self._over_at = "", math.inf
        self._fatal: PubSubError | None = None
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
            self._group_record.look(self._sets)
            self._reader.subscribe(list(self._sets), self)
        else:
            self._show()

    def turn(self, *, take: bool = True) -> None:
        """One step: settle, begin, store, write, read. Without `take` nothing new is begun."""
        if self._fatal is not None:
            raise self._fatal
        if self._reported and time.monotonic() >= self._over_at:
            self._reported = ""
            self._show()
        if take and self._ask(self._role.grow):
            self.start()
        if not self._sets:
            time.sleep(_WAIT)
            return
        self._take_outcomes(wait=False)
        if take:
            self._try_again()
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
        return self._ask(self._role.outdated)

    @property
    def busy(self) -> bool:
        """Whether a transaction is under way."""
        return any(each.busy for each in self._sendings.all)

    def close(self, *, trim: bool = True) -> None:
        """Leaves the group, after the work under way has ended; `trim`: handled records are deleted once more."""
        with contextlib.ExitStack() as last_first:
            last_first.callback(self._writer.close)
            last_first.callback(self._role.close)
            last_first.callback(lambda: self._trimming.close(trim=trim))
            last_first.callback(self._sendings.close)
            last_first.callback(self._beginnings.close)
            last_first.callback(lambda: self._asker.shutdown(wait=False, cancel_futures=True))
            self._reader.close()

    def _ask(self, role: Callable[[], bool]) -> bool:
        try:
            return role()
        except PubSubError as error:  # it is asked again
            self._report_log(error)
            return False

    def _report_log(self, error: PubSubError) -> None:
        self._reported = str(error)
        passes = isinstance(error, BrokerUnavailable | DeadlineExceeded)
        self._over_at = time.monotonic() + _FORGET if passes else math.inf
        self._show()
        self._troubles.tell(error, "%s: %s", self._role.name, error)

    def _show(self) -> None:
        self._metrics.error = self._wrong.error or self._reported
        self._metrics.partitions = len(self.tasks)

    # -- the group's events, inside a read ---------------------------------------------------------------------

    def assigned(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, ReadFrom]:
        """Begins the tasks of the partitions that came as a whole."""
        mine = set(partitions)
        shares = [share for share in self._shares(partitions) if mine.issuperset(share.places)]
        self._role.expect({topic for share in shares for topic in share.topics})
        try:
            for share, found in self._beginnings.find_together(shares).items():
                self._begin(share, found)
        finally:
            self._role.expect(())
        self._paused -= mine
        self.joined = True
        self._show()
        return {
            place: position
            for share, task in self.tasks.items()
            for place, position in zip(share.places, task.positions, strict=True)
            if place in mine
        }

    def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """Gives partitions up when the work under way is stored or not."""
        self._take_outcomes(wait=True)
        membership = self._reader.membership()
        if membership is not None:
            going = [share for share in self._shares(partitions) if share in self.tasks]
            self._sendings.commit_last_positions(
                {share: self.tasks[share].last_positions() for share in going}, membership
            )
        self._forget(partitions)

    def lost(self, partitions: Sequence[TopicPartition]) -> None:
        """Gives partitions up; the group refuses the work under way."""
        self._forget(partitions)

    def failed(self, partition: TopicPartition | None, error: PubSubError, fatal: bool) -> None:
        """The log reported an error: of the reader, or of a partition that can't be read from where it should be."""
        if not fatal:
            self._report_log(error)
        elif partition is not None:
            self._park(self._shares([partition])[0], error)
        else:
            self._metrics.error, self._fatal = str(error), self._fatal or error

    def _forget(self, partitions: Sequence[TopicPartition]) -> None:
        shares = self._shares(partitions)
        for share in shares:
            self.tasks.pop(share, None)
        self._wrong.forget(shares)
        self._paused -= set(partitions)
        self._show()

    # -- beginning ---------------------------------------------------------------------------------------------

    def _begin(self, share: Share, found: Found) -> None:
        """Makes a task from the committed positions, or parks the partition with the error."""
        try:
            if isinstance(found, PubSubError):
                raise found
            if share in self._wrong.alone():
                self._sendings.set_apart(share)
            writer = self._sendings.of(share).id
            self.tasks[share] = self._role.begin(share.topics, share.number, found, writer)
            self._wrong.begun(share)
        except Exception as error:
            self._park(share, error)

    def _try_again(self) -> None:
        """Makes tasks anew whose pause is over; another thread makes the requests for that."""
        if self._asked is not None:
            wanted, answer = self._asked
            if not answer.done():
                return
            self._asked = None
            parked = self._wrong.parked()
            for share, found in answer.result().items():
                if parked.get(share) is wanted[share]:
                    self._begin_again(share, found)
            self._show()
        now = time.monotonic()
        due = {
            share: each
            for share, each in self._wrong.parked().items()
            if now >= each.again_at and each.settled() and not self._sendings.is_under_way(share)
        }
        if due:
            self._asked = due, self._asker.submit(self._beginnings.find, sorted(due))

    def _begin_again(self, share: Share, found: Found) -> None:
        self._begin(share, found)
        task = self.tasks.get(share)
        if task is None:
            return
        try:
            for place, position in zip(share.places, task.positions, strict=True):
                self._reader.seek(place, position)
        except PubSubError as error:
            self._park(share, error)
            return
        self._reader.resume(share.places)
        self._paused -= set(share.places)

    def _park(
        self, share: Share, error: Exception, *, unstored: bool = False, unknown: bool = False
    ) -> Trouble:
        """Something is wrong with one partition: it is made anew after a pause, and the others go on."""
        reason = str(error) if isinstance(error, PubSubError) else f"{error!r}; please report this"
        if not isinstance(error, PubSubError):
            _log.exception("%s: partition %d of %s failed", self._role.name, share.number, share.topics[0])
        text = "%s: partition %d of %s waits, and is tried again: %s"
        told = error if isinstance(error, PubSubError) else PubSubError(reason)
        self._troubles.tell(told, text, self._role.name, share.number, share.topics[0], reason)
        self.tasks.pop(share, None)
        trouble = self._wrong.fail(share, reason, unknown=unknown)
        trouble.unstored = trouble.unstored or unstored
        self._sendings.set_apart(share)
        self._show()
        return trouble

    # -- transactions ------------------------------------------------------------------------------------------

    def _send(self) -> None:
        membership = self._reader.membership()
        if membership is None:
            return
        together, alone = self._sendings.together, self._sendings.alone
        if alone:
            self._join_again()
        if together.free:
            parts = self._decide([each for each in self._in_turn() if each[0] not in alone])
            if parts:
                together.send(parts, membership)
        for sending in self._sendings.apart if alone else ():
            mine = [each for each in self._in_turn() if alone.get(each[0]) is sending]
            if sending.free and (parts := self._decide(mine, at_most=1)):
                sending.send(parts, membership, careful=True)

    def _decide(self, tasks: Iterable[tuple[Share, Task]], at_most: int = 1_000_000) -> list[Part]:
        """Asks tasks for their work, until a transaction is full."""
        parts: list[Part] = []
        left, room = self._role.at_once, float(_BYTES)
        for share, task in tasks:
            part = self._wrong.part_of(share)
            try:
                work = task.work(max(1, int(min(_WORK, left) * part)), max(1, int(room * part)))
            except Exception as error:
                self._park(share, error, unstored=True)
                continue
            if work is None:
                continue
            parts.append(Part(share, task, work))
            left -= len(work.records)
            room -= bytes_of(work.records)
            if left <= 0 or room <= 0 or len(parts) == at_most:
                break
        return parts

    def _join_again(self) -> None:
        """Has tasks that were alone for long enough without a failure go with the others."""
        alone, still = self._sendings.alone, self._wrong.alone()
        for share in [share for share, each in alone.items() if share not in still and not each.busy]:
            del alone[share]
            if share in self.tasks:
                self.tasks[share].write_as(self._sendings.together.id)

    def _in_turn(self) -> list[tuple[Share, Task]]:
        """The tasks, each time another one first."""
        tasks = list(self.tasks.items())
        first = self._metrics.transactions % len(tasks) if tasks else 0
        return tasks[first:] + tasks[:first]

    def _take_outcomes(self, *, wait: bool) -> None:
        """Settles the transactions that have ended."""
        for sending in self._sendings.all:
            before = sending.id
            while (ended := sending.take(wait=wait)) is not None:
                if ended.outcome.ending is Ending.STORED:
                    self._settle(ended.sent[0])
                else:
                    self._fail(ended)
            if sending.id != before:
                self._rename(sending)

    def _settle(self, sent: Sent) -> None:
        self._metrics.stored(len(sent.records))
        self._reported = ""
        quick = time.monotonic() - sent.began < _QUICK
        for part in sent.parts:
            self._wrong.stored(part.share, len(part.work.records), quick=quick, waits=part.work.waits)
            if self.tasks.get(part.share) is part.task:
                part.task.stored(part.work)
                self._trim(part)
        self._show()

    def _fail(self, ended: Ended) -> None:
        """Parks the tasks whose work wasn't stored."""
        self._metrics.aborted += 1
        first, reason = ended.sent[0], explain(ended)
        unknown = ended.outcome.ending is Ending.UNKNOWN
        for part, number, refusal in first.refused():
            part.task.refuse(part.work, number, refusal)
        for sent in ended.sent:
            for part in sent.parts:
                if self.tasks.get(part.share) is not part.task:
                    continue
                trouble = self._park(
                    part.share, reason, unstored=bool(part.work.records) and not unknown, unknown=unknown
                )
                trouble.settled = ended.settled
                if got_no_answer(ended.outcome) and not unknown:
                    self._wrong.halve(trouble, max(len(sent.records) / _WORK, sent.bytes / _BYTES))

    def _rename(self, sending: Sending) -> None:
        """Has the tasks that write under an id that was given up say so in their next commit."""
        for share, task in self.tasks.items():
            if self._sendings.of(share) is sending:
                task.write_as(sending.id)

    def _trim(self, part: Part) -> None:
        places = part.share.places
        for topic, offset in self._role.trimmable(part.work.positions).items():
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
                    self._writer.append(
                        found.topic, found.value, None, found.headers, report, found.partition
                    )
                except BufferError:
                    break  # it is asked for again
        self._writer.poll(0)

    def _report(self, task: Task, error: object, record: StoredRecord) -> None:
        """Tells a task that its record is stored; records outside of transactions may be lost."""
        if error is None:
            task.appended(record, self._clock())

    def _patience(self) -> float:
        """Seconds that a read may wait."""
        times = [at for task in self.tasks.values() if (at := task.wakeup_at()) is not None]
        self.wakeup_at = min(times, default=None)
        if self._is_moved:
            tasks = self.tasks.values()
            unsure = any(task.awaits() or any(True for _ in task.unsure()) for task in tasks)
            self.unsure = unsure or bool(self._wrong.parked())
        if self.busy or self._asked is not None:
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
            task = self.tasks.get(Share(self._sets[topic], number))
            if task is None:
                continue
            try:
                again = task.receive(self._numbers[topic], some, now)
            except Exception as error:
                self._park(Share(self._sets[topic], number), error)
                continue
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
            if (again := task.reach(topic, position.offset)) is not None:
                self._reader.seek(place, again)

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
            task = self.tasks.get(Share(self._sets[place.topic], place.partition))
            if task is not None:
                self._reader.seek(place, task.positions[self._numbers[place.topic]])
        if resume:
            self._reader.resume(list(resume))

    def _which(self, topics_of: Callable[[Task], Iterable[int]]) -> set[TopicPartition]:
        return {share.places[topic] for share, task in self.tasks.items() for topic in topics_of(task)}

    def _shares(self, partitions: Iterable[TopicPartition]) -> list[Share]:
        """The sets that these partitions belong to, in order."""
        return sorted({Share(self._sets[topic], number) for topic, number in partitions})
