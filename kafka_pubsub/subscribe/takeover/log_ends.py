"""The ends of logs: a marker behind the last message must not look like a message that waits.

Theory. Each transaction leaves a marker in the log. A reader never returns one, so a committed position would stay
before it, and Kafka's own tools would show a lag of 1 for as long as no message comes. The reader's position passes
markers, at the latest when the broker reports the end of the log, up to 0.5 s after the last record. So the fetcher
compares the position with the core's when there is nothing to read, and tells the core if the reader's is higher.

Rules
1. It looks only after a read that returned nothing, and at most every `LOOK` seconds: a message costs nothing.
2. A partition that must be sought first (`paired_partitions`) is left out: the reader's position is
   that of an earlier ownership until then.
3. Before it leaves the group, it waits for the checkpoint of what is finished (at most `SAVING`). Then it asks once for
   the ends of the logs that are finished: where the reader's position is the end, nothing is hidden.
4. The marker behind what the stream itself wrote needn't be read, where nothing else can lie there (`is_marker`): a
   reader of committed records gets such a record only when its marker lies below the end of the log, so if the log has
   room for one offset only behind that record, this offset is the marker.
5. For other markers it waits until the reader is told the ends (at most `SETTLE`), which takes an idle fetch.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Sequence

from kafka_pubsub.errors import PubSubError
from kafka_pubsub.log.ports import LogReader
from kafka_pubsub.model import LogEnd, TopicPartition
from kafka_pubsub.partition_id import PartitionId
from kafka_pubsub.subscribe.runner_api import Runner
from kafka_pubsub.subscribe.takeover.listener import AssignmentListener

__all__ = ["LOOK", "SETTLE", "LogEnds", "is_marker"]

#: Seconds between two looks: with a commit's 0.15 s and the 0.5 s until an end is reported, below a second. Each look
#: that finds nothing doubles it, up to the second figure.
LOOK, LONGEST_LOOK = 0.2, 2.0
#: The largest share of the fetcher's time for looks, because a look at many partitions takes long.
SHARE = 0.02
#: Seconds that closing waits for checkpoints: with the producer's start a transaction takes 0.1.
SAVING = 3.0
#: Seconds that closing waits for the ends of logs; the broker reports them after an idle fetch of 0.5 s.
SETTLE = 1.0
#: Seconds that closing waits for the answer to its question for ends; a broker that is there needs milliseconds.
ANSWER = 0.3
#: Seconds and records of one read meanwhile.
SLICE, FEW = 0.005, 100


class LogEnds:
    """Reports the ends of logs to the core, for the fetcher of one stream."""

    def __init__(self, runner: Runner, rebalances: AssignmentListener, reader: LogReader) -> None:
        self._runner = runner
        self._rebalances = rebalances
        self._reader = reader
        self._look_at = 0.0
        self._wait = LOOK
        #: The logs that were read to the end, by the answer to the question before leaving; None: it wasn't asked.
        self._read: set[TopicPartition] | None = None

    def look(self) -> None:
        """Reports to the core which logs were read further than it knows, if it is time for a look."""
        began = self._runner.clock()
        if began >= self._look_at:
            self._wait = LOOK if self._tell() else min(LONGEST_LOOK, 2 * self._wait)
            now = self._runner.clock()
            self._look_at = now + max(self._wait, (now - began) / SHARE)

    def look_at(self, numbers: Collection[PartitionId]) -> None:
        """Reports the positions of these partitions at once: a choice waits for them."""
        if numbers:
            self._tell(numbers)

    def _tell(self, numbers: Collection[PartitionId] | None = None) -> bool:
        """Reports the positions of logs (None: of all) that were read further; returns whether there were any."""
        runner, reported = self._runner, False
        partitions = runner.coordinator.partitions
        wanted = list(partitions.owned) if numbers is None else numbers
        owned = {n: p for n in wanted if (p := partitions.owned.get(n)) is not None and self._is_read_on(n)}
        places = [each for number in owned for each in self._places(number)]
        positions = self._reader.positions(places)
        for number, partition in owned.items():
            main, beside = self._places(number)
            position, retry = positions.get(main), positions.get(beside)
            if position is None or retry is None:
                continue
            if position.offset > partition.position or retry.offset > partition.retry_position:
                self._post(number, position, retry)
                reported = True
        return reported

    def _post(self, number: PartitionId, position: LogEnd, retry: LogEnd) -> None:
        coordinator, clock = self._runner.coordinator, self._runner.clock
        self._runner.post(lambda: coordinator.read_up_to(number, position, retry, clock()))

    def _places(self, number: PartitionId) -> tuple[TopicPartition, TopicPartition]:
        return self._rebalances.layout.pair(number)

    def _is_read_on(self, number: PartitionId) -> bool:
        return not self._rebalances.pairs.holds_up(number)

    def leave(self, *, in_order: bool) -> None:
        """Leaves the group; `in_order`: the fetcher was told to end, so the ends of logs are worth waiting for."""
        self._rebalances.begin_leaving()
        try:
            if in_order:
                self._settle()
        finally:
            self._reader.close()

    def _settle(self) -> None:
        """Reads on until checkpoints are written and the ends of finished logs are known (rules 3 to 5)."""
        runner = self._runner
        limit = runner.clock() + SAVING
        until = runner.clock() + SETTLE
        with contextlib.suppress(PubSubError):  # no broker answers: the next owner reports the ends
            runner.catch_up()
            while (saves := self._saves()) or self._may_hide_markers():
                now = runner.clock()
                until = min(now + SETTLE, limit) if saves else until
                if now >= until:
                    break
                runner.commit_posted()
                if self._rebalances.pairs.sort_out(self._reader.read(FEW, SLICE)):
                    return  # these records are dropped, so positions no longer count
                runner.catch_up()
            self._tell()

    def _saves(self) -> bool:
        """Returns whether a partition still has something to write before its final commit."""
        partitions = self._runner.coordinator.partitions
        return any(each.saves for each in list(partitions.owned.values()))

    def _may_hide_markers(self) -> bool:
        """Returns whether a log that is finished may still have markers; asks for all logs at once."""
        finished: list[TopicPartition] = []
        partitions = self._runner.coordinator.partitions
        for number, partition in list(partitions.owned.items()):
            if not self._is_read_on(number):
                continue
            main, beside = self._places(number)
            if not partition.unfinished:
                finished.append(main)
            checkpoint = partition.checkpoint_at
            # The reader may know the log's end from before the checkpoint was written.
            if checkpoint is not None and checkpoint >= partition.retry_position:
                return True
            if partition.retry_finished:
                finished.append(beside)
        told = self._reader.at_end(finished)
        unsure = [place for place in finished if place not in told]
        if unsure and self._read is None:
            self._read = self._ask_for_ends(unsure)
        return not (self._read or set()).issuperset(unsure)

    def _ask_for_ends(self, places: Sequence[TopicPartition]) -> set[TopicPartition]:
        """Returns those of these logs that were read to their ends now, but for a marker that it reports (rule 4)."""
        ends, positions = self._reader.readable_ends(places, ANSWER), self._reader.positions(places)
        read = {place for place, end in ends.items() if positions[place].offset == end.offset}
        pairs = self._rebalances.pairs
        written = pairs.retry_side.written
        ours = {place: written[place] for place in ends if place not in read and place in written}
        tops = self._reader.high_watermarks(list(ours)) if ours else {}
        for place, last in ours.items():
            at, end = positions[place].offset, ends[place].offset
            if end == tops[place] and is_marker(last, at, end):
                self._tell_marker(place, ends[place])
                read.add(place)
        return read

    def _tell_marker(self, place: TopicPartition, end: LogEnd) -> None:
        """Reports that a retry partition was read up to this end, though the reader isn't told yet."""
        number = self._rebalances.layout.number(place)
        main = self._places(number)[0]
        if (position := self._reader.positions([main]).get(main)) is not None:
            self._post(number, position, end)


def is_marker(written: int, position: int, end: int) -> bool:
    """Returns whether the last offset of a log is the marker behind the record at `written`.

    `written`: the last offset of a transaction that was committed. `position`: up to where committed records were read.
    `end`: the end of the log since then, with open transactions.
    """
    return written + 1 == position == end - 1
