"""The group's events: partitions that come, go or are lost, and a log that can't be read any further.

Theory. The fetcher gets these events inside a read. The runner decides what to do, so the fetcher asks it
and waits; before that, the fetcher asks the log for what the runner needs.

Rules
1. If a layout isn't the catalog's, it is refused before any message of it is delivered. Partitions are
   taken on as pairs (`paired_partitions`).
2. An outage proves nothing about a subscription: an assignment is tried again without a limit. The group goes on
   without this member if it must.
3. At a revoke every move result has come before the final commit is sent, and the final commit waits for the answer to
   the one before. A partition whose final commit can't be sent in time is given up as if it were lost; then, and when a
   commit is still unanswered, the membership ends too (`rejoining_reader`).
4. The retry topic may be made again while the stream runs: the stream leaves the group, and rejoins with the new one.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TypeVar

from kafka_pubsub.config import SubscriptionRecord
from kafka_pubsub.errors import (
    BrokerUnavailable,
    DeadlineExceeded,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    PubSubError,
)
from kafka_pubsub.lane_names import LaneGone
from kafka_pubsub.log.ports import LogReader
from kafka_pubsub.log.trouble_log import TroubleLog
from kafka_pubsub.model import CommitAnswers, Committed, LogEnd, ReadFrom, TopicPartition
from kafka_pubsub.partition_id import PartitionId
from kafka_pubsub.subscribe.partition.effects import CommitBoth
from kafka_pubsub.subscribe.retry_topic.layout import Layout
from kafka_pubsub.subscribe.retry_topic.lost_tails import Findings, refuse
from kafka_pubsub.subscribe.retry_topic.retry_io import MOVE_WAIT, RetryIO
from kafka_pubsub.subscribe.retry_topic.retry_topics import RetryTopicGone, remake_call, retry_beginning
from kafka_pubsub.subscribe.retry_topic.start_position import TRY_AGAIN, beginning
from kafka_pubsub.subscribe.runner_api import Runner
from kafka_pubsub.subscribe.takeover.paired_partitions import PairedPartitions
from kafka_pubsub.subscribe.workers.observer import UNOBSERVED

__all__ = ["AssignmentListener"]

log = logging.getLogger("kafka_pubsub.subscriber")

#: Seconds for which "not found" doesn't count, in an assignment or a commit: a broker that has just started knows no
#: topic.
DENIED = 10.0
#: Seconds that a wait of a close has at least.
LEAST_WAIT = 1.0

Answer = TypeVar("Answer")


class AssignmentListener:
    """Takes assignments on and gives them up, for one stream."""

    def __init__(
        self,
        runner: Runner,
        reader: LogReader,
        record: SubscriptionRecord,
        look_up: Callable[[], SubscriptionRecord],
        retry_side: RetryIO,
    ) -> None:
        self.record = record
        self.observer = UNOBSERVED
        self.pairs = PairedPartitions(runner, reader, retry_side)
        #: Makes the stream go over to the subscription's present topics (`renewal`). None: it can't.
        self.renew: Callable[[], None] | None = None
        #: Returns the topics of a record of the subscription.
        self.layout_of: Callable[[SubscriptionRecord], Layout] = Layout
        self._runner = runner
        self._reader = reader
        self._look_up = look_up
        self._troubles = TroubleLog(log)
        #: Since when answers to commits say that the topic doesn't exist; None: they don't.
        self._denied_at: float | None = None
        #: When to look at the lanes' Kafka topics next, and whether one was missing at the last look.
        self._look_at = 0.0
        self._missed = False
        #: How often the catalog said that the topic has no other lanes than these.
        self.looks = 0
        #: Whether the group has answered: with partitions, or with none because other members have them all.
        self.joined = False
        #: Assignments so far.
        self.rebalances = 0
        #: Seconds for which an open transaction has held up a retry partition.
        self.held_up = 0.0
        #: When a close began to leave the group (monotonic seconds); None: it hasn't.
        self._leaving_since: float | None = None

    def widen(self, layout: Layout) -> list[str]:
        """Adds lanes, while no partition is owned; returns the topics to read. What rests may return."""
        self.record = layout.record
        self.pairs.retry_side.layout = layout
        return self.topics()

    def go_over(self, record: SubscriptionRecord, retry_side: RetryIO) -> list[str]:
        """Goes over to another retry topic, while no partition is owned; returns the topics to read."""
        before, self.record = self.pairs, record
        self._runner.ask(lambda: self._runner.coordinator.go_over(retry_side, self._runner.clock()))
        self.pairs = PairedPartitions(self._runner, self._reader, retry_side)
        # Its last move requests may take a while.
        threading.Thread(
            target=before.retry_side.close, args=(MOVE_WAIT,), name="kafka_pubsub-over", daemon=True
        ).start()
        return self.topics()

    def end(self) -> None:
        """Stops the requests of the retry side: no more events come."""
        if not self.pairs.retry_side.close(self.time_left(MOVE_WAIT)):
            log.warning("subscription %r: its moves end later", self.record.name)

    def begin_leaving(self) -> None:
        """From now on the waits of a close share their time: a broker that doesn't answer one won't answer the next."""
        self._leaving_since = time.monotonic()

    def time_left(self, limit: float) -> float:
        """Returns the seconds for a wait that has ended `limit` seconds after a close began to leave."""
        if self._leaving_since is None:
            return limit
        return max(limit - (time.monotonic() - self._leaving_since), LEAST_WAIT)

    def noticed(self, record: SubscriptionRecord) -> None:
        """Takes the record as it is now in the catalog; any thread may call it."""
        if self.layout.laned:
            self._look_at_lanes()
        if self.renew is None or not _stands(record):
            return
        layout = self.layout_of(record) if record.lanes else Layout(record)
        if self._is_changed(layout):
            self.renew()
        else:
            self.looks += 1

    def _look_at_lanes(self) -> None:
        """Ends the stream if a lane's Kafka topic is gone for `DENIED` seconds: its partitions wait for it."""
        now = time.monotonic()
        if now < self._look_at:
            return
        self._look_at = now + DENIED
        try:
            self._look_up()
            self._missed = False
        except LaneGone as error:
            if self._missed:
                self._runner.fail(error)
            self._missed = True

    def _is_changed(self, layout: Layout) -> bool:
        return layout.identity != self.layout.identity

    @property
    def layout(self) -> Layout:
        """The topics, and the numbers of their partitions."""
        return self.pairs.layout

    def place(self, number: PartitionId) -> TopicPartition:
        """Returns a partition of a home topic."""
        return self.layout.home(number)

    def retries_read(self) -> Mapping[TopicPartition, int]:
        """Returns up to where each owned retry partition was read; any thread may call it."""
        layout, partitions = self.layout, self._runner.coordinator.partitions
        owned = list(partitions.owned.items())
        return {layout.beside(number): partition.retry_position for number, partition in owned}

    def topics(self) -> list[str]:
        """Returns the topics that the stream reads."""
        return self.layout.topics

    def commit(
        self, commits: Mapping[PartitionId, CommitBoth], answered: Callable[[dict[PartitionId, bool]], None]
    ) -> None:
        """Sends commits; calls `answered`, on any thread, with whether each was accepted."""
        positions = self._positions(commits)
        noted = self.observer.committing(commits)

        def tell(answers: CommitAnswers) -> None:
            self.observer.answered(noted, answers)
            answered(self._accepted(commits, answers))

        try:
            self._reader.commit(positions, tell)
        except PubSubError as error:
            tell(dict.fromkeys(positions, error))

    def _accepted(
        self, commits: Mapping[PartitionId, CommitBoth], answers: CommitAnswers
    ) -> dict[PartitionId, bool]:
        accepted = dict.fromkeys(commits, True)
        for place, answer in answers.items():
            if answer is not None:
                self._troubles.tell(answer, "the commit of %s was refused: %s", place, answer)
                accepted[self.layout.number(place)] = False
            if isinstance(answer, InvalidArgument):
                self._runner.fail(answer)  # no later commit would be accepted either
        self._believe(denied=any(isinstance(answer, NotFound) for answer in answers.values()))
        return accepted

    def _believe(self, *, denied: bool) -> None:
        """Looks the subscription up once a topic was missing for `DENIED` seconds; ends the stream if it is gone."""
        if not denied:
            self._denied_at = None
        elif self._denied_at is None:
            self._denied_at = time.monotonic()
        elif time.monotonic() - self._denied_at >= DENIED:
            self._denied_at = None
            try:
                self._look_up()
            except (FailedPrecondition, NotFound) as error:
                self._runner.fail(error)
            except PubSubError as error:
                self._troubles.tell(error, "subscription %r: %s", self.record.name, error)

    def _positions(self, commits: Mapping[PartitionId, CommitBoth]) -> dict[TopicPartition, Committed]:
        """Returns the commits in the log's form."""
        positions: dict[TopicPartition, Committed] = {}
        for number, commit in commits.items():
            positions |= self.layout.positions(number, commit)
        return positions

    def assigned(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, ReadFrom]:
        """Takes the assigned partitions on; returns where to read each from."""
        starts = self._patiently(lambda: self._take_on(partitions))
        self.joined = True
        self.rebalances += 1
        log.info("subscription %r: assigned %s", self.record.name, _shown(partitions))
        return starts

    def look_again(self) -> SubscriptionRecord:
        """Returns the subscription as it is now in the catalog."""
        return self._patiently(self._looked_up)

    def _patiently(self, call: Callable[[], Answer]) -> Answer:
        """Returns the call's answer; repeats the call while no broker answers (rule 2)."""
        denied_until = time.monotonic() + DENIED
        while True:
            try:
                return call()
            except (BrokerUnavailable, DeadlineExceeded, LaneGone, NotFound, RetryTopicGone) as error:
                denied = isinstance(error, LaneGone | NotFound | RetryTopicGone)
                denied_for_long = denied and time.monotonic() > denied_until
                if denied_for_long or not self._runner.fetches(threading.current_thread()):
                    raise
                self._troubles.tell(error, "subscription %r: %s; trying again", self.record.name, error)
                time.sleep(TRY_AGAIN)

    def _looked_up(self) -> SubscriptionRecord:
        record = self._look_up()
        if not _stands(record):
            raise RetryTopicGone(
                f"the retry topic of subscription {record.name!r} is being made; if the call that makes it has "
                f"stopped, {remake_call(record.name)} goes on with it",
                calls=(remake_call(record.name),),
            )
        return record

    def _take_on(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, ReadFrom]:
        record = self._looked_up()  # rule 1
        layout = self.layout_of(record)
        if self._is_changed(layout):
            if self.renew is None:
                raise FailedPrecondition(
                    f"the retry topic or the lanes of subscription {record.name!r} aren't those that it had when this "
                    "stream was opened: open it again"
                )
            self.renew()
            return {}  # partitions of the old and the new topic are never served together
        self.record = record
        return self.pairs.take_on(layout, partitions)

    def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """Gives the partitions up, with a final commit."""
        log.info("subscription %r: revoked %s", self.record.name, _shown(partitions))
        pairs = self.pairs
        numbers = pairs.let_go(partitions)
        self._give_up(stuck := pairs.hold_still(numbers, self.time_left(MOVE_WAIT)))
        numbers = [number for number in numbers if number not in stuck]
        self._runner.commit(self._runner.final_commits(numbers))
        # The last action may be a move.
        self._give_up(pairs.retry_side.wait(numbers, self.time_left(MOVE_WAIT)))
        self._runner.commit(self._runner.ask(self._runner.coordinator.take_late_commits))
        self.observer.revoked(numbers, lost=False)

    def _give_up(self, stuck: Sequence[PartitionId]) -> None:
        if stuck:
            log.error(
                "subscription %r: moves of partitions %s weren't answered; giving these up without a final commit, "
                "so some messages may be delivered again",
                self.record.name,
                [str(self.place(number)) for number in stuck],
            )
            self._runner.lose(stuck)
            self.pairs.retry_side.rejoin()

    def lost(self, partitions: Sequence[TopicPartition]) -> None:
        """Drops partitions that were lost."""
        log.info("subscription %r: lost %s", self.record.name, _shown(partitions))
        numbers = self.pairs.let_go(partitions)
        self._runner.lose(numbers)
        if self.pairs.retry_side.wait(numbers, 0):
            self.pairs.retry_side.rejoin()

    def failed(self, partition: TopicPartition | None, error: PubSubError, fatal: bool) -> None:
        """Takes an error that the log reported."""
        if not fatal:
            self._troubles.tell(error, "subscription %r: %s", self.record.name, error)
        elif partition is None:
            raise error
        else:
            self._stepped_out(partition, error)

    def _stepped_out(self, place: TopicPartition, error: PubSubError) -> None:
        """Handles a position outside the log; retention may have moved the log's start past it."""
        number = self.layout.number(place)
        partitions = self._runner.coordinator.partitions
        if (owned := partitions.owned.get(number)) is None:
            return
        if self.layout.is_retry(place.topic):
            self._retry_stepped_out(place, owned.retry_position, owned.retry_read)
            return
        position = owned.position
        try:
            log_range = self._reader.log_range(place)
        except NotFound:
            self._refuse_another_topic()
            raise
        log.warning("subscription %r: %s (position %d, log %s)", self.record.name, error, position, log_range)
        read = owned.read
        lost = self.pairs.retry_side.lost(place, read)
        if lost is not None:
            self._refuse_another_topic()
        refuse(self.record.name, Findings({place: read}, {} if lost is None else {place: lost}))
        view = self.layout.view(number)
        start = beginning(view, place.partition, Committed(position, ""), log_range)
        self._reader.seek(place, start.position)

    def _refuse_another_topic(self) -> None:
        """Raises the reason if the topic or the lane was deleted and made again: its log didn't lose its end."""
        with suppress(BrokerUnavailable, DeadlineExceeded):
            self._look_up()

    def _retry_stepped_out(self, place: TopicPartition, position: int, read: LogEnd) -> None:
        try:
            log_range = self._reader.log_range(place)
        except NotFound:
            log_range = (0, -1)
        lost = position > log_range[1] or self.pairs.retry_side.lost(place, read) is not None
        if lost and self.renew is not None:
            self.renew()  # the topic was cut at its end, deleted, or made again: the state in memory is no longer true
            return
        view = self.layout.view(self.layout.number(place))
        begun = retry_beginning(view, place.partition, Committed(position, ""), log_range)
        self._reader.seek(place, begun.position)


def _shown(partitions: Sequence[TopicPartition]) -> str:
    """Returns the partitions for the log: a few by name, many as a number."""
    if not partitions:
        return "no partitions"
    names = ", ".join(f"{topic}[{number}]" for topic, number in sorted(partitions)[:4])
    return names if len(partitions) <= 4 else f"{len(partitions)} partitions: {names}, ..."


def _stands(record: SubscriptionRecord) -> bool:
    """Returns whether the retry topic isn't being made just now."""
    return record.retry_topic is None or bool(record.retry_topic.topic_id)
