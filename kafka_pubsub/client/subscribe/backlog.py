"""Counts the messages that a subscription hasn't finished, from Kafka alone.

Theory. No process has to receive, no group is joined, and nothing is changed. Positions, their metadata and checkpoints
say what is finished; every other offset is unfinished, at home or in the retry topic. A message that was moved is
finished at home and unfinished in the retry topic.

Rules
1. Positions are read before ends, as in `key_states.py`. If the checkpoint that they name is gone, the owner has stored
   others meanwhile, which are read instead.
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

from kafka_pubsub.client.assignment.layout import Layout
from kafka_pubsub.client.dead_letters.counting import BYTES_A_RECORD
from kafka_pubsub.client.dead_letters.key_states import NOWHERE, Waiting, WaitingRoom, noted
from kafka_pubsub.client.dead_letters.reading import ReadSome, read_some, shares
from kafka_pubsub.client.retry.checkpoint_reader import Finished, Pair, finished_of, gaps, offsets_of
from kafka_pubsub.config import SubscriptionRecord
from kafka_pubsub.core.commit.offsets import Run
from kafka_pubsub.core.lanes.numbers import number_of
from kafka_pubsub.model import StoredRecord, TopicPartition
from kafka_pubsub.ports import Backend, RecordFetch

__all__ = ["Backlog", "Sums", "read_backlogs", "summed"]

#: The unfinished offsets of each home partition that are read, and the bytes of bodies for all.
LOOK, LOOK_BYTES = 100, 8 * 1024 * 1024
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
    """What is unfinished of one partition, at home and in its retry partition."""

    def __init__(self, record: SubscriptionRecord, number: int, room: WaitingRoom, *, alive: bool) -> None:
        stored = room.home.get(number, NOWHERE)
        retry = record.retry_topic
        self.home = TopicPartition(record.topic, number)
        self.beside = TopicPartition("" if retry is None else retry.name, number)
        self.pair = Pair(stored, room.positions.get(number, NOWHERE), self.beside, room.ends.get(number, 0))
        self.position = record.positions.get(number, 0) if stored.offset is None else stored.offset
        self.retry_position = room.position(number)
        self.waiting = Waiting(record, number, self.pair.retry, alive=alive)
        #: Kafka's lag.
        self.lag = 0
        #: The unfinished offsets of both logs.
        self.left: Sequence[Run] = ()
        self.retry_left: Sequence[Run] = ()
        #: The messages at home, and the offsets of the retry partition that weren't read.
        self.at_home = self.unread = 0
        #: The messages at home that were in flight at the last commit.
        self.started: list[StoredRecord] = []
        self._oldest: int | None = None

    def begin(self, start: int, end: int, finished: Finished) -> None:
        """Takes what is finished, and the first offset and the end of the home partition."""
        self.lag = max(0, end - self.position)
        self.left = gaps(max(start, self.position), finished.home, end)
        self.retry_left = gaps(self.retry_position, finished.retry, self.pair.end)
        self.at_home, self.unread = _length(self.left), _length(self.retry_left)

    def looked_at(self) -> Sequence[int]:
        """Returns the offsets of the home partition that have to be read."""
        return sorted({*islice(offsets_of(self.left), LOOK), *noted(self.pair.home)})

    def take(self, asked: Sequence[int], some: ReadSome) -> None:
        """Takes the records at these offsets of the home partition."""
        there = {record.offset() or 0: record for record in some.records}
        missing = set(asked).difference(there, some.unread)
        self.at_home -= sum(_covers(self.left, offset) for offset in missing)
        started = noted(self.pair.home)
        self.started = [there[offset] for offset in started if offset in there]
        times = [record.timestamp()[1] for offset, record in there.items() if _covers(self.left, offset)]
        self._oldest = min(times, default=None)

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
) -> dict[int, Backlog]:
    """Reads what is unfinished of each partition, by its number in the layout.

    `limit`: how many messages of the retry topics are read. `alive`: a process receives.
    """
    for _ in range(ATTEMPTS):
        found, ends = _positions(backend, layout, fetch, alive=alive)
        finished = finished_of(fetch, [each.pair for each in found.values()])
        if all(each.whole for each in finished):
            break
    starts = _starts(backend, [each.home for each in found.values() if each.position < ends[each.home]])
    for each, known in zip(found.values(), finished, strict=True):
        each.begin(starts.get(each.home, 0), ends[each.home], known)
    _read_homes(fetch, found.values())
    _read_retries(fetch, found.values(), limit)
    return found


def _positions(
    backend: Backend, layout: Layout, fetch: RecordFetch, *, alive: bool
) -> tuple[dict[int, Backlog], Mapping[TopicPartition, int]]:
    """Returns all partitions with their positions, and the ends of the home partitions."""
    found: dict[int, Backlog] = {}
    ends: dict[TopicPartition, int] = {}
    for index, view in layout.views.items():
        room = WaitingRoom(backend, view, fetch)
        for number, end in backend.admin.last_stable_offsets(view.topic).items():
            backlog = found[number_of(index, number)] = Backlog(view, number, room, alive=alive)
            ends[backlog.home] = end
    return found, ends


def _starts(backend: Backend, places: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
    """Returns the first offset still stored of each: retention has deleted what lies below."""
    ranges = backend.admin.log_ranges(places) if places else {}
    return {place: start for place, (start, _) in ranges.items()}


def _read_homes(fetch: RecordFetch, backlogs: Iterable[Backlog]) -> None:
    asked = {each: offsets for each in backlogs if (offsets := each.looked_at())}
    found = read_some(fetch, {each.home: offsets for each, offsets in asked.items()}, LOOK_BYTES)
    for each, offsets in asked.items():
        each.take(offsets, found[each.home])


def _read_retries(fetch: RecordFetch, backlogs: Iterable[Backlog], limit: int) -> None:
    open_ones = {each.beside: each for each in backlogs if each.unread}
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
