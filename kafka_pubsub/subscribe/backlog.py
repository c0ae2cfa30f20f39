"""Counts the messages that a subscription hasn't finished, from Kafka alone.

Theory. No process has to receive, no group is joined, and nothing is changed. Positions, their metadata and checkpoints
name the finished offsets; every other offset is unfinished, at home or in the retry topic. A message that was moved is
finished at home and unfinished in the retry topic.

Rules
1. All positions are read by one request, and before the ends. So a message that moves meanwhile is seen at one place at
   least. If the checkpoint that they name is gone, the owner has stored others, which are read instead.
2. An offset may hold no message: a transaction's marker, compaction, an aborted record. So the first unfinished offsets
   of a home partition are read; further ones count as messages, so that a large number is an upper bound.
3. Messages in retry topics are read up to a limit. The offsets beyond it count as messages that wait.
4. A message that is unfinished at home as well (it is just being moved, or the broker has forgotten positions) counts
   once.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from kafka_pubsub.config import SubscriptionRecord
from kafka_pubsub.errors import BrokerUnavailable
from kafka_pubsub.log.ports import Backend, RecordFetch
from kafka_pubsub.model import Committed, Run, StoredRecord, TopicPartition
from kafka_pubsub.partition_id import PartitionId
from kafka_pubsub.subscribe.dead_letters.counting import BYTES_A_RECORD
from kafka_pubsub.subscribe.dead_letters.scan import ReadSome, read_some, shares
from kafka_pubsub.subscribe.retry_topic.checkpoint_reader import Finished, Pair, finished_of, gaps, offsets_of
from kafka_pubsub.subscribe.retry_topic.key_states import NOWHERE, Waiting, noted, retry_position
from kafka_pubsub.subscribe.retry_topic.layout import Layout

__all__ = ["Backlog", "Sums", "read_backlogs", "summed"]

#: The unfinished offsets of each home partition that are read, and the bytes of bodies for all.
LOOK, LOOK_BYTES = 100, 8 * 1024 * 1024
#: Seconds for one request of the ends.
SECONDS = 5.0
#: How often positions are read while their checkpoint is gone. An owner names another one every few minutes.
ATTEMPTS = 3


class Sums(NamedTuple):
    """The sums over some partitions; see `SubscriptionState`. `oldest`: milliseconds, None: nothing is unfinished."""

    lag: int
    backlog: int
    waiting_retry: int
    parked: int
    blocked_keys: int
    unread: int
    oldest: int | None


class Backlog:
    """The unfinished messages of one partition, at home and in its retry partition. `stored`: the group's commits."""

    def __init__(
        self,
        record: SubscriptionRecord,
        number: int,
        stored: Mapping[TopicPartition, Committed],
        ends: Mapping[TopicPartition, int],
        *,
        alive: bool,
    ) -> None:
        self.home, beside = _places(record, number)
        at_home, in_retry = stored.get(self.home, NOWHERE), stored.get(beside, NOWHERE)
        self.pair = Pair(at_home, in_retry, beside, ends.get(beside, 0))
        self.position = record.positions.get(number, 0) if at_home.offset is None else at_home.offset
        self.end = ends[self.home]
        self.waiting = Waiting(record, number, in_retry, alive=alive)
        self._retry_position = retry_position(record, number, in_retry)
        #: The unfinished offsets of both logs.
        self.left: Sequence[Run] = ()
        self.retry_left: Sequence[Run] = ()
        #: The messages at home, and the offsets of the retry partition that weren't read.
        self.at_home = self.unread = 0
        #: The first unfinished messages at home, and those that were in flight at the last commit.
        self.first: list[StoredRecord] = []
        self.started: list[StoredRecord] = []
        self._oldest: int | None = None

    def begin(self, start: int, finished: Finished) -> None:
        """Takes the finished offsets, and the first offset still stored at home: retention has deleted those below."""
        self.left = gaps(max(start, self.position), finished.home, self.end)
        self.retry_left = gaps(self._retry_position, finished.retry, self.pair.end)
        self.at_home, self.unread = _length(self.left), _length(self.retry_left)

    @property
    def lag(self) -> int:
        """Kafka's lag."""
        return max(0, self.end - self.position)

    def looked_at(self) -> Sequence[int]:
        """Returns the offsets of the home partition that have to be read."""
        return sorted({*islice(offsets_of(self.left), LOOK), *noted(self.pair.home)})

    def is_unfinished(self, offset: int) -> bool:
        """Returns whether an offset of the home partition is unfinished there."""
        return _covers(self.left, offset)

    def take(self, asked: Sequence[int], some: ReadSome) -> None:
        """Takes the records at these offsets of the home partition."""
        there = {record.offset() or 0: record for record in some.records}
        missing = set(asked).difference(there, some.unread)
        self.at_home -= sum(_covers(self.left, offset) for offset in missing)
        started = noted(self.pair.home)
        self.started = [there[offset] for offset in started if offset in there]
        self.first = [record for offset, record in sorted(there.items()) if self.is_unfinished(offset)]
        self._oldest = min((record.timestamp()[1] for record in self.first), default=None)

    def take_waiting(self, some: ReadSome, asked: int) -> None:
        """Takes the first `asked` unfinished records of the retry partition, as far as they were read."""
        for record in some.records:
            self.waiting.take(record)
        self.unread -= asked - len(some.unread)

    @property
    def messages(self) -> int:
        """The number of unfinished messages."""
        twice = sum(_covers(self.left, origin) for origin in self.waiting.origins()) if self.left else 0
        return self.at_home + len(self.waiting) - twice + self.unread

    @property
    def oldest_parked(self) -> int | None:
        """When the first of the parked ones was published, in milliseconds; None: none is parked."""
        parked = self.waiting.parked
        return min(parked.values(), default=None)

    @property
    def oldest_at_home(self) -> int | None:
        """When the first of those that aren't in the retry topic was published, in milliseconds."""
        return self._oldest

    @property
    def oldest(self) -> int | None:
        """When the first of those that were read was published, in milliseconds."""
        return min((each for each in (self._oldest, self.waiting.oldest) if each is not None), default=None)


def summed(backlogs: Iterable[Backlog]) -> Sums:
    """Returns the sums over these partitions."""
    some = list(backlogs)
    parked = sum(len(each.waiting.parked) for each in some)
    unread = sum(each.unread for each in some)
    return Sums(
        sum(each.lag for each in some),
        sum(each.messages for each in some),
        sum(len(each.waiting) for each in some) - parked + unread,
        parked,
        sum(len(each.waiting.keys) for each in some),
        unread,
        min((each.oldest for each in some if each.oldest is not None), default=None),
    )


def read_backlogs(
    backend: Backend, layout: Layout, fetch: RecordFetch, limit: int, *, alive: bool
) -> dict[PartitionId, Backlog]:
    """Reads the unfinished messages of each partition, by its number in the layout.

    `limit`: how many messages of the retry topics are read. `alive`: a process receives.
    """
    for _ in range(ATTEMPTS):
        found = _positions(backend, layout, alive=alive)
        finished = finished_of(fetch, [each.pair for each in found.values()])
        if all(each.whole for each in finished):
            break
    starts = _starts(backend, [each.home for each in found.values() if each.lag])
    for each, known in zip(found.values(), finished, strict=True):
        each.begin(starts.get(each.home, 0), known)
    _read_homes(fetch, found.values())
    _read_retries(fetch, found.values(), limit)
    return found


def _places(record: SubscriptionRecord, number: int) -> tuple[TopicPartition, TopicPartition]:
    retry = "" if record.retry_topic is None else record.retry_topic.name
    return TopicPartition(record.topic, number), TopicPartition(retry, number)


def _positions(backend: Backend, layout: Layout, *, alive: bool) -> dict[PartitionId, Backlog]:
    """Returns all partitions with their positions, and the ends that both logs have after that."""
    numbers = {
        PartitionId(index, number): (view, number)
        for index, view in layout.views.items()
        for number in range(view.partitions)
    }
    pairs = [_places(*each) for each in numbers.values()]
    places = [place for pair in pairs for place in pair if place.topic]
    stored = backend.admin.group_positions(layout.record.name, places)
    ends = backend.admin.readable_ends(places, SECONDS)
    away = [place for place in places if place not in ends]
    if away:
        raise BrokerUnavailable(
            f"the end of {away[0].topic}[{away[0].partition}] isn't known, because its leader didn't answer within "
            f"{SECONDS:g} s: try again"
        )
    return {key: Backlog(*each, stored, ends, alive=alive) for key, each in numbers.items()}


def _starts(backend: Backend, places: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
    """Returns the first offset still stored of each."""
    ranges = backend.admin.log_ranges(places) if places else {}
    return {place: start for place, (start, _) in ranges.items()}


def _read_homes(fetch: RecordFetch, backlogs: Iterable[Backlog]) -> None:
    asked = {each: offsets for each in backlogs if (offsets := each.looked_at())}
    found = read_some(fetch, {each.home: offsets for each, offsets in asked.items()}, LOOK_BYTES)
    for each, offsets in asked.items():
        each.take(offsets, found[each.home])


def _read_retries(fetch: RecordFetch, backlogs: Iterable[Backlog], limit: int) -> None:
    open_ones = {each.pair.beside: each for each in backlogs if each.unread}
    share = shares({place: each.unread for place, each in open_ones.items()}, limit)
    wanted = {place: list(islice(offsets_of(open_ones[place].retry_left), share[place])) for place in share}
    for place, some in read_some(fetch, wanted, limit * BYTES_A_RECORD).items():
        open_ones[place].take_waiting(some, len(wanted[place]))


def _length(runs: Sequence[Run]) -> int:
    return sum(stop - start for start, stop in runs)


def _covers(runs: Sequence[Run], offset: int) -> bool:
    """Returns whether the offset is in one of these ascending runs."""
    at = bisect_right(runs, offset, key=lambda run: run[0]) - 1
    return at >= 0 and offset < runs[at][1]
