"""A member of a consumer group that reads committed records.

Theory: librdkafka keeps a queue of fetched records and of events (rebalance, errors); `read` drains it and runs the
listener for the events. Three properties of that queue are not obvious:

- A read takes several calls, and a rebalance may come in the middle: then the read has records of an assignment that
  is over. Returning them after the listener was called would leave a hole in the next assignment. So a read in which
  the assignment changed returns only records that follow, without a gap, the offset that the listener gave
  (`moved_records`). (Inside one call librdkafka 2.16 does that itself; this module doesn't rely on it.)
- An exception inside a callback makes librdkafka's client drop the batch. So the callbacks never raise: an exception
  of the listener is kept, the group gets its answer (with no partitions), and `read` raises the exception.
- Under the protocol `consumer` librdkafka assigns in steps (incremental), under classic `range` as a whole (eager).

Rules
1. One thread reads (`read`, `seek`, `pause`, `resume`); `commit`, `committed` and `log_range` may come from others,
   also while a listener's method runs. After `close` they raise `FailedPrecondition`; a close waits for running calls.
   Partitions that the group assigns during a close are declined, and the listener isn't called.
2. `failed(partition, error, fatal)`: fatal means that waiting won't help: that partition (or, without one, this
   reader) won't read on.
3. A commit's answer is by partition. `BrokerUnavailable` and `DeadlineExceeded`: unknown or not now, commit again.
   `FailedPrecondition`: the group has ended this membership, and the commit wasn't stored.
4. A consumer that has complained, and finds no broker ten seconds later although a new client does, is replaced: its
   partitions are lost, and the reader comes back as a new member.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence, Set
from typing import TypeVar, cast

from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as KafkaPartition

from kafka_pubsub.errors import FailedPrecondition, PubSubError
from kafka_pubsub.log.kafka.admin import KafkaAdmin
from kafka_pubsub.log.kafka.bounded_calls import Bounded, ask
from kafka_pubsub.log.kafka.broker_watch import LOST_S, look_for_brokers
from kafka_pubsub.log.kafka.client_factory import ClientFactory
from kafka_pubsub.log.kafka.client_settings import reader_settings
from kafka_pubsub.log.kafka.commit_requests import Commits
from kafka_pubsub.log.kafka.consumer_guard import ConsumerGuard
from kafka_pubsub.log.kafka.conversions import (
    committed_of,
    kafka_partition,
    name_of,
    plain,
    say_nothing,
)
from kafka_pubsub.log.kafka.errors import error_of, translate
from kafka_pubsub.log.kafka.group_membership import membership_of, renewed
from kafka_pubsub.log.kafka.moved_records import sort_moved
from kafka_pubsub.log.kafka.reader_errors import ReaderErrors
from kafka_pubsub.log.kafka.rights import of_group
from kafka_pubsub.log.ports import LogReader, RebalanceListener
from kafka_pubsub.model import Answered, Committed, LogEnd, Membership, ReadFrom, StoredRecord, TopicPartition

__all__ = ["KafkaLogReader"]

_LOGGER = logging.getLogger("kafka_pubsub.reader")

_T = TypeVar("_T")

#: Seconds. `committed()` runs at every assignment, inside a rebalance, and the group waits for it.
_COMMITTED_DEADLINE = 30.0
#: Seconds for a close: it takes milliseconds if the broker answers; the rest is time for a broker to come back.
_CLOSE_DEADLINE = 15.0
#: Seconds for which `close` waits until the group has revoked the partitions; and between two checks.
_REVOKE_DEADLINE, _CLOSE_SLICE = 10.0, 0.005
#: Seconds between two checks for a newer epoch: a transaction that was refused for an old one is sent again soon.
_EPOCH_EVERY = 0.5


class KafkaLogReader(LogReader):
    """A `LogReader` over librdkafka's consumer."""

    def __init__(
        self,
        handles: ClientFactory,
        admin: KafkaAdmin,
        group: str,
        member: str,
        protocol: str,
        spread: bool = False,
        lanes: bool = False,
    ) -> None:
        self._handles = handles
        self._admin = admin
        self._group = group
        self._incremental = protocol == "consumer"
        self._errors = ReaderErrors(group, handles.address, self._fail)
        self._settings = reader_settings(group, member, protocol, spread=spread, lanes=lanes)
        self._consumer = handles.consumer(*self._settings, self._errors.note)
        self._calls = ConsumerGuard()
        self._commits = Commits(
            group, self._commit_now, self._is_member, handles.address, self._errors.trouble
        )
        # Whether this reader leaves the group for good: partitions that it gets then are declined.
        self._leaving = False
        # Held by `read`, so that a `close` from another thread waits for it to return.
        self._reading = threading.Lock()
        # When to ask whether the consumer has lost its brokers (monotonic seconds), and whether it has.
        self._look_at = 0.0
        self._lost = False
        self._topics: Sequence[str] = ()
        self._listener: RebalanceListener | None = None
        # The assigned partitions, with their start; None: the listener left it out. Empty: none are assigned.
        self._assigned: dict[TopicPartition, ReadFrom | None] = {}
        # Whether this reader is a member of the group, by the last callback.
        self._joined = False
        # The membership, as of the last assignment or rise of the epoch; None: there is none, or it was ended.
        self._membership: Membership | None = None
        # When to check for a newer epoch (monotonic seconds).
        self._epoch_at = 0.0
        # The partitions that came or went during the running read. Empty in between.
        self._moved: set[TopicPartition] = set()
        #: Those of them that did so while records were in hand, which may be of the assignment before.
        self._moved_late: set[TopicPartition] = set()
        # The exception of a listener, until `read` raises it.
        self._raised: BaseException | None = None
        # Where the log ended when its end was last reported.
        self._ends: dict[TopicPartition, int | None] = {}

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._calls.closed

    def subscribe(self, topics: Sequence[str], listener: RebalanceListener) -> None:
        """Joins the group at the next `read`."""
        self._topics, self._listener = topics, listener
        with self._calls.one():
            self._join()

    def read(self, max_records: int, timeout: float) -> Sequence[StoredRecord]:
        """Returns up to `max_records`, and waits up to `timeout` seconds for the first."""
        self._handles.check()
        with self._reading, self._calls.one():
            if self._lost:
                self._begin_anew()
            if self._incremental and self._membership is not None:
                self._follow_epoch(self._membership)
            try:
                records = self._consumer.consume(max_records, 0)
                if timeout > 0 and say_nothing(records, self._ends):
                    records = self._wait(max_records, timeout)
            except KafkaException as failure:
                raise translate(failure, of_group(self._group, "read")) from None
            if self._moved:
                records = self._without_moved(records)
            self._raise_kept()
            good = [record for record in records if record.error() is None]
            if self._errors.down or self._look_at:
                self._watch_brokers(heard=bool(good))
            if len(good) != len(records):
                self._errors.note_records(records, self._assigned, self._ends)
                self._raise_kept()
        return cast("list[StoredRecord]", good)  # its header values are typed wider than they are

    def committed(
        self, partitions: Sequence[TopicPartition], timeout: float | None = None
    ) -> Mapping[TopicPartition, Committed]:
        """Returns the stored positions, in one request; waits while a transaction with their offsets is open."""
        wanted = [KafkaPartition(*each) for each in partitions]

        def answers(left: float) -> Mapping[TopicPartition, Committed]:
            found = self._consumer.committed(wanted, timeout=left)
            for each in found:
                if each.error is not None:
                    raise KafkaException(each.error)
            return {TopicPartition(each.topic, each.partition): committed_of(each) for each in found}

        self._handles.check()
        with self._calls.one():
            return ask(
                answers,
                of_group(self._group, "position", *(each.topic for each in partitions)),
                address=self._handles.address,
                trouble=self._errors.trouble,
                deadline=_COMMITTED_DEADLINE if timeout is None else timeout,
            )

    def committed_unstable(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, Committed]:
        """Returns the positions stored before the transactions that are open now."""
        return self._admin.unstable_offsets(self._group, partitions)

    def membership(self) -> Membership | None:
        """Returns the membership as of the last assignment or rise of the epoch."""
        return self._membership

    def commit(self, positions: Mapping[TopicPartition, Committed], answered: Answered) -> None:
        """Begins a commit; `answered` is called once, from another thread."""
        self._handles.check()
        self._calls.check()
        self._commits.begin(positions, answered)

    def unanswered(self) -> bool:
        """Returns whether a commit is unanswered."""
        return self._commits.busy

    def settle(self) -> bool:
        """Waits for the answer; False: it doesn't come, and librdkafka may send the commit under a newer membership."""
        return self._commits.settle()

    def log_range(self, partition: TopicPartition) -> tuple[int, int]:
        """Returns the first stored offset, and the next one to be written."""
        return self._admin.log_range(partition)

    def reachable_ranges(
        self, partitions: Sequence[TopicPartition], timeout: float
    ) -> Mapping[TopicPartition, tuple[int, int]]:
        """Returns the ranges of the partitions whose leaders answer in time."""
        return self._admin.ends.find_ranges(partitions, timeout)

    def readable_ends(
        self, partitions: Sequence[TopicPartition], timeout: float
    ) -> Mapping[TopicPartition, LogEnd]:
        """Returns where committed records end in each, over other connections: here the broker may wait for a fetch."""
        return self._admin.ends.find_one_by_one(partitions, timeout)

    def high_watermarks(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Returns the next offset to be written of each, open transactions included."""
        return self._admin.high_watermarks(partitions)

    def positions(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, LogEnd]:
        """Returns positions below which every record was read; they pass markers once librdkafka reports the end."""
        with self._calls.one():
            mine = [each for each in partitions if self._assigned.get(each) is not None]
            return self._positions(mine)

    def at_end(self, partitions: Sequence[TopicPartition]) -> Set[TopicPartition]:
        """Returns the partitions whose end librdkafka reported at the present position."""
        at = self.positions(partitions)
        return {place for place in at if at[place].offset == self._ends.get(place)}

    def seek(self, partition: TopicPartition, to: ReadFrom) -> None:
        """Sets the offset from which the partition's next record is read."""
        with self._calls.one():
            try:
                self._consumer.seek(kafka_partition(partition, to))
            except KafkaException as failure:
                raise translate(failure, f"seek in {name_of(partition)}") from None
            self._assigned[partition] = to

    def pause(self, partitions: Sequence[TopicPartition]) -> None:
        """Stops reading these partitions; ignores those that aren't assigned any more."""
        with self._calls.one():
            self._switch(self._consumer.pause, partitions, "pause")

    def resume(self, partitions: Sequence[TopicPartition]) -> None:
        """Resumes reading; ignores partitions that aren't assigned any more, or were assigned without a position."""
        mine = [each for each in partitions if self._assigned.get(each) is not None]
        with self._calls.one():
            self._switch(self._consumer.resume, mine, "resume")
            # A fetcher that found nothing to fetch sleeps for up to a second, and resuming doesn't wake it; a seek
            # to the present position does (700 ms and 3 ms).
            for where, position in self._positions(mine).items():
                # librdkafka knows no position from a seek to the next record; another resume may come before that.
                self._assigned[where] = position
                self._start_again(where, position)

    def close(self) -> None:
        """Gives up the partitions (`revoked`), waits for running commits, and leaves the group."""
        if self._calls.closed:
            return
        try:
            self._handles.check()
        except FailedPrecondition:
            return
        if not self._reading.acquire(timeout=_CLOSE_DEADLINE):
            self._abandon("a read hasn't returned, so we can't leave")
            return
        try:
            if self.closed:
                return  # by another call meanwhile
            Bounded("kafka_pubsub-leave").run(self._leave, _CLOSE_DEADLINE)
        except KafkaException:
            # The thread goes on by itself when the broker answers; its outcome is dropped.
            self._abandon("the broker doesn't answer to our leaving", logging.INFO)
        finally:
            self._reading.release()
        self._raise_kept()

    def _abandon(self, why: str, level: int = logging.WARNING) -> None:
        self._calls.closed, self._listener = True, None
        self._commits.close()
        self._handles.abandon(self._consumer)
        _LOGGER.log(level, "group %r: %s; it will notice", self._group, why)

    def _leave(self) -> None:
        self._leaving = True
        with self._calls.together():
            try:
                self._give_back()
            finally:
                self._calls.close()
                self._commits.close()
                self._handles.leave_group(self._consumer)

    def _wait(self, max_records: int, timeout: float) -> list[Message]:
        """Waits for one record, then takes those that came with it: a wait for many would wait for all of them."""
        end = time.monotonic() + timeout
        records = self._consumer.consume(1, timeout)
        while records and say_nothing(records, self._ends) and (left := end - time.monotonic()) > 0:
            records = self._consumer.consume(1, left)
        if records and max_records > 1:
            moved, self._moved = self._moved, set()
            try:
                records += self._consumer.consume(max_records - 1, 0)
            finally:
                self._moved_late = self._moved
                self._moved = moved | self._moved
        return records

    # -- inside read -----------------------------------------------------------------------------------------

    def _follow_epoch(self, membership: Membership) -> None:
        if (now := time.monotonic()) >= self._epoch_at:
            self._epoch_at = now + _EPOCH_EVERY
            self._membership = renewed(self._consumer, membership)

    def _on_assign(self, consumer: Consumer, partitions: list[KafkaPartition]) -> None:
        if self._leaving:
            # A rebalance ended just now. Without an answer the client would take the partitions.
            self._answer(consumer, [])
            return
        self._joined = True
        # Later it could be a newer one, under which the broker would accept commits of another member's partitions.
        self._membership = membership_of(consumer, self._group)
        mine = plain(partitions)
        starts = self._tell(lambda listener: listener.assigned(mine)) or {}
        self._moved.update(mine)
        for each in mine:
            self._assigned[each] = starts.get(each)
        # A partition without a start gets an absolute offset too: a logical one would make librdkafka ask for it.
        answer = [kafka_partition(each, starts.get(each, 0)) for each in mine]
        self._answer(consumer, answer)
        # librdkafka remembers from an earlier assignment which partitions were paused.
        consumer.resume(answer)
        if idle := [KafkaPartition(*each) for each in mine if each not in starts]:
            consumer.pause(idle)

    def _answer(self, consumer: Consumer, partitions: list[KafkaPartition]) -> None:
        (consumer.incremental_assign if self._incremental else consumer.assign)(partitions)

    def _on_revoke(self, consumer: Consumer, partitions: list[KafkaPartition]) -> None:
        # librdkafka's client unassigns by itself when this returns, by the protocol in force.
        mine = self._held(partitions)
        self._tell(lambda listener: listener.revoked(mine))
        self._forget(mine)
        if not self._incremental:
            self._membership = None

    def _on_lost(self, consumer: Consumer, partitions: list[KafkaPartition]) -> None:
        self._joined, self._membership = False, None
        mine = self._held(partitions)
        self._forget(mine)
        self._tell(lambda listener: listener.lost(mine))

    def _held(self, partitions: Sequence[KafkaPartition]) -> list[TopicPartition]:
        """Returns the partitions that the listener knows of: the others were declined."""
        return [each for each in plain(partitions) if each in self._assigned]

    def _forget(self, partitions: Sequence[TopicPartition]) -> None:
        self._moved.update(partitions)
        for each in partitions:
            self._assigned.pop(each, None)
            self._ends.pop(each, None)

    def _tell(self, call: Callable[[RebalanceListener], _T]) -> _T | None:
        if self._listener is None:
            return None
        try:
            return call(self._listener)
        except BaseException as raised:  # it must not reach librdkafka; `read` raises it
            self._raised = self._raised or raised
            return None

    def _fail(self, partition: TopicPartition | None, error: PubSubError, fatal: bool) -> None:
        self._tell(lambda listener: listener.failed(partition, error, fatal))

    def _raise_kept(self) -> None:
        raised, self._raised = self._raised, None
        if raised is not None:
            raise raised

    def _without_moved(self, records: list[Message]) -> list[Message]:
        """Drops records of partitions that came or went, and has them fetched again if they are still assigned."""
        moved, self._moved = self._moved, set()
        late, self._moved_late = self._moved_late, set()
        kept, again = sort_moved(records, {each: self._assigned.get(each) for each in moved}, late)
        for where, start in again.items():
            self._start_again(where, start)
        return kept

    def _positions(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, LogEnd]:
        """Returns the position of each partition's next record."""
        if not partitions:
            return {}
        found = self._consumer.position([KafkaPartition(*each) for each in partitions])
        return {
            where: LogEnd(each.offset, each.leader_epoch) if each.offset >= 0 else self._started(where)
            for where, each in zip(plain(found), found, strict=True)
        }

    def _started(self, partition: TopicPartition) -> LogEnd:
        start = self._assigned[partition] or 0
        return LogEnd(start) if isinstance(start, int) else start

    def _start_again(self, partition: TopicPartition, start: ReadFrom) -> None:
        try:
            self._consumer.seek(kafka_partition(partition, start))
        except KafkaException as failure:
            # Not fetching yet: then it will begin where the assignment said, which is the same place.
            if error_of(failure).code() != KafkaError._STATE:
                self._raised = self._raised or translate(failure, f"start of {name_of(partition)}")

    # -- brokers that are lost (decision 046) -----------------------------------------------------------------

    def _watch_brokers(self, *, heard: bool) -> None:
        now, look_at = time.monotonic(), self._look_at
        if heard:
            self._errors.down = False  # but records may have been fetched before
        elif look_at and now < look_at:
            return
        self._look_at = now + LOST_S
        if look_at and not heard:
            self._find_brokers(self._consumer)

    def _find_brokers(self, consumer: Consumer) -> None:
        def ask(*, timeout: float) -> object:
            with self._calls.one():
                return consumer.list_topics(timeout=timeout)

        def lost() -> None:
            self._lost = consumer is self._consumer

        def found() -> None:
            self._errors.down, self._look_at = False, 0.0

        look_for_brokers(ask, self._handles, lost, found)

    def _begin_anew(self) -> None:
        """Joins as a new member with a new consumer; the old one hears from no broker any more."""
        _LOGGER.warning(
            "group %r: the client library has lost the brokers; coming back as a new member", self._group
        )
        lost, self._consumer = self._consumer, self._handles.consumer(*self._settings, self._errors.note)
        self._handles.abandon(lost)
        self._lost, self._errors.down, self._look_at = False, False, 0.0
        if self._assigned:
            self._on_lost(self._consumer, [KafkaPartition(*each) for each in self._assigned])
        self._joined, self._membership = False, None
        self._join()

    def _join(self) -> None:
        self._consumer.subscribe(
            list(self._topics), on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )

    # -- parts -----------------------------------------------------------------------------------------------

    def _commit_now(self, offsets: list[KafkaPartition]) -> list[KafkaPartition]:
        with self._calls.one():
            return self._consumer.commit(offsets=offsets, asynchronous=False)

    def _is_member(self) -> bool:
        with self._calls.one():
            return self._joined and bool(self._consumer.memberid())

    def _switch(
        self,
        switch: Callable[[list[KafkaPartition]], None],
        partitions: Sequence[TopicPartition],
        doing: str,
    ) -> None:
        mine = [KafkaPartition(*each) for each in partitions if each in self._assigned]
        if not mine:
            return
        try:
            switch(mine)
        except KafkaException as failure:
            raise translate(failure, f"{doing} of group {self._group!r}") from None

    def _give_back(self) -> None:
        if not self._assigned:
            return
        # Pausing drops prefetched records, so that the awaited event is next in the queue.
        self._consumer.pause([KafkaPartition(*each) for each in self._assigned])
        self._consumer.unsubscribe()
        end = time.monotonic() + _REVOKE_DEADLINE
        while self._assigned and time.monotonic() < end:
            self._consumer.consume(1, _CLOSE_SLICE)
