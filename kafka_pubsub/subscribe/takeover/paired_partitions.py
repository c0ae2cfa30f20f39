"""Takes on a topic's partition with its retry partition, and delivers nothing before the retry partition is read.

Theory. A partition of the topic and the one of the retry topic with the same number are served together or not at all,
and with them the same partition of all lanes and of their retry topics (`layout`).
The retry partition is the lock: a key that waits there must not go on in the home partition. So the home partition is
read only when the retry partition has been read up to the high watermark that it had after `committed()` had answered.
(Its last stable offset can hide a move whose origin is already called finished.)

Rules
1. A partition that is missing in one topic doesn't begin in any; when it goes in one topic, it is given up in all.
2. The home partition's end is requested after the retry partition's: no valid record of the retry partition has an
   origin beyond it (`partition/origin_check.py`).
3. `committed()` reads both positions in one request. While it waits for a dead owner's open transaction, the positions
   stored before name the writer, which is fenced; sooner if these say that the owner didn't leave in good order.
4. All of this runs on the fetcher, except `move_answered`, `written`, `found` and `restart`, which the runner calls.
5. Seeks happen between two reads, never inside a callback of the group.
"""

from __future__ import annotations

import logging
import secrets
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime

from kafka_pubsub.errors import BrokerUnavailable, DeadlineExceeded, InvariantViolated, NotFound, PubSubError
from kafka_pubsub.log.ports import LogReader
from kafka_pubsub.log.trouble_log import TroubleLog
from kafka_pubsub.model import UNREAD, Committed, LogEnd, ReadFrom, StoredRecord, TopicPartition
from kafka_pubsub.partition_id import PartitionId
from kafka_pubsub.subscribe.formats.ack_map import AckMap
from kafka_pubsub.subscribe.formats.checkpoint import Checkpoint, Log, Named, united
from kafka_pubsub.subscribe.partition.events import Bodies, MovesAnswered, Written
from kafka_pubsub.subscribe.partition.settings import Found, LogStart
from kafka_pubsub.subscribe.retry_topic import dead_letter_writer
from kafka_pubsub.subscribe.retry_topic.body_reader import FoundBodies
from kafka_pubsub.subscribe.retry_topic.checkpoint_reader import map_of, named_by, stored_by
from kafka_pubsub.subscribe.retry_topic.layout import Layout, by_number
from kafka_pubsub.subscribe.retry_topic.lost_tails import refuse
from kafka_pubsub.subscribe.retry_topic.retry_io import RetryIO, identity_of
from kafka_pubsub.subscribe.retry_topic.retry_topics import marked_nonce, retry_beginning
from kafka_pubsub.subscribe.retry_topic.start_position import (
    TRY_AGAIN,
    Beginning,
    beginning,
    check_readable,
    reach,
)
from kafka_pubsub.subscribe.retry_topic.transaction_thread import MoveResult
from kafka_pubsub.subscribe.runner_api import Runner

__all__ = ["PairedPartitions"]

log = logging.getLogger("kafka_pubsub.subscriber")

#: Seconds without an answer after which an open transaction is the cause; answers take milliseconds otherwise.
BLOCKED = 1.0
#: The same where the last owner didn't leave in good order, so that it is probably dead and keys would wait for long.
DEAD = 0.3

#: Seconds for the answers of leaders where logs begin and end; and between two tries to begin where one doesn't answer.
_REACH, _AWAY = 1.0, 5.0

_NOTHING = AckMap(0, ())


class PairedPartitions:
    """The work of one stream's fetcher on the retry topic."""

    def __init__(
        self,
        runner: Runner,
        reader: LogReader,
        retry_side: RetryIO,
        nonce: Callable[[], int] = lambda: secrets.randbits(30),
    ) -> None:
        self.retry_side = retry_side
        self._runner = runner
        self._reader = reader
        self._troubles = TroubleLog(log)
        self._nonce = nonce
        #: The assigned partitions, whether or not their pair is complete.
        self._held: set[TopicPartition] = set()
        #: Partitions whose retry partition isn't read yet: how far it must be read, and the home partition's start.
        self._behind: dict[PartitionId, tuple[int, LogEnd]] = {}
        #: The offsets to seek, once this read has returned.
        self._late: dict[TopicPartition, LogEnd] = {}
        #: Partitions that must begin anew, filled by the runner; and the time before which they must not.
        self._again: deque[PartitionId] = deque()
        self._not_before = 0.0
        retry_side.connect(runner.post, self)

    # Partitions that come

    @property
    def layout(self) -> Layout:
        """The topics, and the numbers of their partitions."""
        return self.retry_side.layout

    def take_on(
        self, layout: Layout, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, ReadFrom]:
        """Takes assigned partitions on; returns where to read those that begin now."""
        self.retry_side.layout = layout
        self._held.update(partitions)
        numbers = {place.partition for place in partitions if place.partition < layout.record.partitions}
        starts = self._begin(layout.numbers(each for each in numbers if self._whole(each)))
        self._late.update({place: at for place, at in starts.items() if place not in partitions})
        return {place: at for place, at in starts.items() if place in partitions}

    def _whole(self, partition: int) -> bool:
        return self.layout.places(partition) <= self._held

    def _main(self, number: PartitionId) -> TopicPartition:
        return self.layout.home(number)

    def _beside(self, number: PartitionId) -> TopicPartition:
        return self.layout.beside(number)

    def _begin(self, numbers: Sequence[PartitionId]) -> dict[TopicPartition, LogEnd]:
        """Has the runner take partitions on; returns where to read, home partitions only once caught up."""
        if not numbers:
            self._runner.take_on({}, _begin_nothing, {})
            return {}
        places = [*map(self._main, numbers), *map(self._beside, numbers)]
        committed = self._committed(places)
        for place, stored in committed.items():
            check_readable(self.layout.record, place, stored)
        # Retry partitions first: an honest record there has an origin below the end that is asked for later.
        ranges = {
            **self._reader.reachable_ranges([self._beside(number) for number in numbers], _REACH),
            **self._reader.reachable_ranges([self._main(number) for number in numbers], _REACH),
        }
        numbers = self._reached(numbers, ranges)
        if not numbers:
            self._runner.take_on({}, _begin_nothing, {})
            return {}
        ends = {place: ranges[place][1] for place in map(self._beside, numbers)}
        reached = {place for number in numbers for place in self.layout.pair(number)}
        known = {place: stored for place, stored in committed.items() if place in reached}
        older = self._recall(numbers, known, ranges)
        findings = self.retry_side.look(known, {place: end for place, (_, end) in ranges.items()})
        refuse(self.layout.record.name, findings)
        read = findings.read
        checkpoints = self._checkpoints(numbers, known, ends)
        counts = self._runner.coordinator.counts

        def begin(number: PartitionId, stored: Committed) -> Found:
            (main, beside), view = self.layout.pair(number), self.layout.view(number)
            lane = number.lane != 0
            said = map_of(stored)
            clean = not stored.metadata or (said is not None and said.clean)
            if not clean:
                counts.takeovers += 1
                log.info("subscription %r: %s is taken over from an owner that didn't leave", view.name, main)
            checkpoint = checkpoints.get(number)
            home = beginning(view, main.partition, known[main], ranges[main], lane=lane)
            retry = retry_beginning(view, main.partition, known[beside], ranges[beside], lane=lane)
            home_end, retry_end = ranges[main][1], ends[beside]
            logs = (None, None) if checkpoint is None else (checkpoint.main, checkpoint.retry)
            lost = checkpoint is None and (home.more or retry.more)
            return Found(
                view.topic,
                view.topic_id,
                _log_start(home, said, logs[0], home_end, reach(home, home_end), read.get(main), clean=clean),
                _log_start(
                    retry,
                    map_of(committed[beside]),
                    logs[1],
                    retry_end,
                    retry_end,
                    read.get(beside),
                    clean=clean,
                ),
                main.partition,
                self._runner.wall.offset(self._runner.clock),
                marked_nonce(view, self._nonce()),
                identity_of(view),
                None if lost else retry.checkpoint or home.checkpoint,
                number in older or (said or _NOTHING).older,
            )

        positions = self._runner.take_on(
            {number: committed[self._main(number)] for number in numbers},
            begin,
            {number: committed[self._beside(number)] for number in numbers},
        )
        self._runner.announce(numbers)
        return self._where_to_read(positions, ends)

    def _reached(
        self, numbers: Sequence[PartitionId], ranges: Mapping[TopicPartition, tuple[int, int]]
    ) -> Sequence[PartitionId]:
        """Returns the partitions of which both leaders answered; the others are tried again after a while."""
        away = {
            number: [each for each in self.layout.pair(number) if each not in ranges] for number in numbers
        }
        for number, places in away.items():
            if places:
                error = BrokerUnavailable(
                    f"{places[0].topic}[{places[0].partition}] has no leader that answers"
                )
                text = "subscription %r: %s; its messages wait, and those of other partitions go on"
                self._troubles.tell(error, text, self.layout.record.name, error)
                self._again.append(number)
                self._not_before = self._runner.clock() + _AWAY
        return [number for number, places in away.items() if not places]

    def _where_to_read(
        self, numbers: Iterable[PartitionId], ends: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, LogEnd]:
        """Returns where to read partitions that were taken on; retry partitions ended at these `ends`."""
        starts: dict[TopicPartition, LogEnd] = {}
        for number in numbers:
            main, beside = self.layout.pair(number)
            position, retry = self._starts(number)
            starts[beside] = retry
            if retry.offset >= ends[beside]:
                starts[main] = position
                self._tell_caught_up(number, retry)
            else:
                self._behind[number] = (ends[beside], position)
        return starts

    def _recall(
        self,
        numbers: Sequence[PartitionId],
        known: dict[TopicPartition, Committed],
        ranges: Mapping[TopicPartition, tuple[int, int]],
    ) -> set[PartitionId]:
        """Puts the newest checkpoint in the place of positions that the broker has forgotten.

        Returns the partitions whose known state may be older than the records of the retry partition.
        """
        places = (self.layout.pair(number) for number in numbers)
        forgotten = [pair for pair in places if any(known[place].offset is None for place in pair)]
        logs = {beside: ranges[beside] for _, beside in forgotten}
        found = self.retry_side.newest(logs)
        for main, beside in forgotten:
            if beside in found:
                self._go_on_from(main, beside, *found[beside], known)
        older = (place for place, (low, end) in logs.items() if place in found or low < end)
        return {self.layout.number(place) for place in older}

    def _go_on_from(
        self,
        main: TopicPartition,
        beside: TopicPartition,
        named: Named,
        in_checkpoint: Checkpoint,
        known: dict[TopicPartition, Committed],
    ) -> None:
        record, number = self.layout.view(self.layout.number(main)), main.partition
        copies = record.positions, {} if record.retry_topic is None else record.retry_topic.positions
        for place, log_of, copy in zip(
            (main, beside), (in_checkpoint.main, in_checkpoint.retry), copies, strict=True
        ):
            if known[place].offset is None:
                known[place] = stored_by(named, log_of, max(log_of.position, copy.get(number, 0)))
        log.warning(
            "subscription %r: the broker has forgotten the group's positions in partition %d of %s (it was idle for "
            "longer than offsets.retention.minutes); going on from the checkpoint of %s: what was acked since is "
            "delivered again",
            record.name,
            number,
            record.topic,
            datetime.fromtimestamp(in_checkpoint.time / 1000, UTC).isoformat(timespec="seconds"),
        )

    def _checkpoints(
        self,
        numbers: Sequence[PartitionId],
        committed: Mapping[TopicPartition, Committed],
        ends: Mapping[TopicPartition, int],
    ) -> Mapping[PartitionId, Checkpoint]:
        """Reads the checkpoints that these commits name, where a checkpoint holds anything above the positions."""
        wanted: dict[TopicPartition, tuple[Named, int]] = {}
        for number in numbers:
            beside = self._beside(number)
            names = named_by(committed[self._main(number)], committed[beside])
            # A checkpoint beyond the log's end was in an earlier log of the same name.
            if names and names[0].offset < ends[beside]:
                wanted[beside] = names[0], ends[beside]
        found = self.retry_side.checkpoints(wanted)
        return {self.layout.number(place): checkpoint for place, checkpoint in found.items()}

    def _starts(self, number: PartitionId) -> tuple[LogEnd, LogEnd]:
        """Returns where to read the home partition from, and the retry partition."""
        partitions = self._runner.coordinator.partitions
        if (partition := partitions.owned.get(number)) is None:
            raise InvariantViolated(f"partition {number} was taken on, and isn't there")
        main, beside = partition.position, partition.retry_position
        epochs = partition.read.epoch_at(main), partition.retry_read.epoch_at(beside)
        return LogEnd(main, epochs[0]), LogEnd(beside, epochs[1])

    def _committed(self, places: Sequence[TopicPartition]) -> Mapping[TopicPartition, Committed]:
        for seconds, all_of_them in ((DEAD, False), (BLOCKED - DEAD, True)):
            try:
                return self._reader.committed(places, seconds)
            except (BrokerUnavailable, DeadlineExceeded):
                self._fence_writers(places, all_of_them=all_of_them)
        return self._reader.committed(places)

    def _fence_writers(self, places: Sequence[TopicPartition], *, all_of_them: bool) -> None:
        """Ends the transactions of other writers; `all_of_them`: also of those that left in good order, and our own."""
        maps = [map_of(stored) for stored in self._reader.committed_unstable(places).values()]
        known = [found for found in maps if found is not None]
        partitions = self._runner.coordinator.partitions
        for writer in {
            found.writer
            for found in known
            if all_of_them or not (found.clean or found.writer == partitions.process)
        }:
            self.retry_side.fence(self.layout.record.name, writer)

    @property
    def rebuilding(self) -> bool:
        """Whether a retry partition is still being read, and holds up its home partition."""
        return bool(self._behind)

    @property
    def settled(self) -> bool:
        """Whether no partition waits for a read to return."""
        return not (self._behind or self._late or self._again)

    def holds_up(self, number: PartitionId) -> bool:
        """Returns whether the partition must be read or sought first: its position doesn't show what was read."""
        late = self._late
        return number in self._behind or self._main(number) in late or self._beside(number) in late

    # Partitions that go

    def let_go(self, partitions: Iterable[TopicPartition]) -> list[PartitionId]:
        """Drops partitions that are no longer ours; returns the numbers of the pairs that go with them."""
        gone = list(partitions)
        self._held.difference_update(gone)
        numbers = self.layout.numbers(place.partition for place in gone)
        for number in numbers:
            self._behind.pop(number, None)
            self._late.pop(self._main(number), None)
            self._late.pop(self._beside(number), None)
        return numbers

    def hold_still(self, numbers: Sequence[PartitionId], timeout: float) -> list[PartitionId]:
        """Waits until no request of them is unanswered; returns those for which that takes longer than `timeout`."""
        partitions = self._runner.coordinator.partitions
        self._runner.ask(lambda: partitions.hold_still(numbers))
        return self.retry_side.wait(numbers, timeout)

    # Records that are read

    def sort_out(self, records: Sequence[StoredRecord]) -> Sequence[StoredRecord]:
        """Posts records of the retry topic, and returns the others. Then makes the seeks that waited for the read."""
        layout = self.layout
        if self._late:  # records from another offset than its start would leave a hole before it
            records = [record for record in records if _place_of(record) not in self._late]
        topics = {record.topic() for record in records}
        retries = [topic for topic in topics if layout.is_retry(topic)]
        if retries:
            mixed = len(topics) > len(retries)
            mine = [record for record in records if record.topic() in retries] if mixed else records
            records = [record for record in records if record.topic() not in retries] if mixed else ()
            batches = by_number(mine, layout)
            runner, coordinator, clock = self._runner, self._runner.coordinator, self._runner.clock
            # A record that crosses threads costs twice as much, and here a million may come.
            hand_over = runner.book if self._behind else runner.post_batch
            hand_over(lambda: coordinator.retry_fetched(batches, clock()))  # type: ignore[arg-type]
        if (
            self._behind and records
        ):  # a partition that begins anew was being read; it is read again from its position
            records = [record for record in records if self._number(record) not in self._behind]
        if self._behind or self._late or self._again:
            begun = self._go_on()
            records = [record for record in records if self._number(record) not in begun]
        return records

    def _number(self, record: StoredRecord) -> PartitionId:
        return self.layout.number(_place_of(record))

    def _go_on(self) -> Sequence[PartitionId]:
        """Returns the partitions that have begun anew just now: their records are of the ownership before."""
        positions = self._reader.positions([self._beside(number) for number in self._behind])
        for number, (end, main) in list(self._behind.items()):
            position = positions.get(self._beside(number))
            if position is not None and position.offset >= end:
                del self._behind[number]
                self._tell_caught_up(number, position)
                self._late[self._main(number)] = main
        ready = self._again and self._runner.clock() >= self._not_before
        begun = self._begin_again() if ready else ()
        for place, at in list(self._late.items()):
            self._read_on(place, at)
        return begun

    def _tell_caught_up(self, number: PartitionId, position: LogEnd) -> None:
        coordinator, clock = self._runner.coordinator, self._runner.clock
        self._runner.post(lambda: coordinator.caught_up(number, position, clock()))

    def _read_on(self, place: TopicPartition, at: LogEnd) -> None:
        try:
            self._reader.seek(place, at)
            self._reader.resume([place])
        except PubSubError as error:
            self._troubles.tell(
                error, "subscription %r: reading %s on again: %s", self.layout.record.name, place, error
            )
        else:
            del self._late[place]

    def _begin_again(self) -> Sequence[PartitionId]:
        """Begins partitions anew from their commits, after an unknown outcome."""
        asked: set[PartitionId] = set()
        while self._again:  # the runner may add to it meanwhile
            asked.add(self._again.popleft())
        partitions = self._runner.coordinator.partitions
        numbers = sorted(n for n in asked if n not in partitions.owned and self._whole(n.partition))
        try:
            starts = self._begin(numbers) if numbers else {}
        except (BrokerUnavailable, DeadlineExceeded, NotFound) as error:
            self._troubles.tell(error, "subscription %r: %s; trying again", self.layout.record.name, error)
            self._not_before = self._runner.clock() + TRY_AGAIN
            self._again.extend(numbers)
            return ()
        self._late.update(starts)
        return numbers

    # Calls of the runner (`Answers`)

    def move_answered(self, move_result: MoveResult) -> None:
        """Takes a move result."""
        move_request, coordinator = move_result.move_request, self._runner.coordinator
        moved = sum(
            self.layout.is_retry(record.topic) for record in move_request.records[: move_request.checkpoint]
        )
        refused = {at: str(error) for at, error in move_result.refused.items()}
        now = self._runner.clock()
        answer = MovesAnswered(move_result.ending, refused, move_result.checkpoint)
        coordinator.move_answered(move_request.partition, move_request.epoch, answer, moved, now)

    def written(self, written: dead_letter_writer.Written) -> None:
        """Takes the result of writing dead letters."""
        move_request, taken, refused, reason = written
        event = Written(taken, {at: str(error) for at, error in refused.items()}, str(reason or ""))
        self._runner.coordinator.replied(
            move_request.partition, move_request.epoch, event, self._runner.clock()
        )

    def found(self, found: FoundBodies) -> None:
        """Takes bodies that were read."""
        place, epoch, _ = found.request
        coordinator = self._runner.coordinator
        bodies = Bodies(found.records, found.missing)
        coordinator.replied(self.layout.number(place), epoch, bodies, self._runner.clock())

    def restart(self, number: PartitionId) -> None:
        """Notes that a partition must begin anew."""
        self._again.append(number)


def _log_start(
    begun: Beginning,
    said: AckMap | None,
    checkpoint: Log | None,
    end: int,
    reached: int,
    read: LogEnd | None,
    *,
    clean: bool,
) -> LogStart:
    """Returns where to begin in a log; `reached`: how far its last owner may have come."""
    said = said or _NOTHING
    held = checkpoint.runs if checkpoint is not None and begun.more else ()
    doubt = said.doubt.next(begun.position, clean=clean, reach=reached)
    known = united(begun.known, held, begun.position)
    return LogStart(begun.position, known, said.notes, doubt, end, held, read or UNREAD)


def _begin_nothing(number: PartitionId, _: Committed) -> Found:
    raise InvariantViolated(f"partition {number} begins, though none was to")


def _place_of(record: StoredRecord) -> TopicPartition:
    return TopicPartition(record.topic() or "", record.partition() or 0)
