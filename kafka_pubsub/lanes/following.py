"""Finds out which messages wait for earlier ones of their key in other lanes (`ps-after`), and for how long.

Theory. A message names, for each other lane in which its publisher has messages of the key, the last one stored there.
It waits for a lane until that was read beyond the named message, and nothing of the key up to that one is unfinished.
In the log with the named id, offsets decide both. In a copy they mean nothing, so there the publisher's numbers decide,
and the end of the lane.

Rules
1. The lane was read beyond a named message if its log has the named id, and the position is behind the named offset.
   Or if its end was reached that was asked for after the message was read which waits, open transactions included. Of a
   transient lane it is asked for `ANSWER_S` later: its leader may answer before readers see its records. A later time
   proves nothing: clocks step back.
2. A message is finished if it neither waits in its lane, nor has a lease, nor moves, nor waits in the retry topic.
3. A lane that the catalog has and this stream doesn't read yet is waited for; one that the catalog hasn't, by a look
   that began after the message was read, is not.
4. Rings. If nothing of a key runs, moves, waits for its time or is unread, and yet none of its messages may go, they
   wait for each other. Then one goes whose own named messages aren't here: they were lost. That takes offsets that were
   given twice, messages that came in after they were given up, or headers that another program wrote.
5. Lifting. A key's next message that may go, in a lane for which a message of a higher priority waits, has that
   priority.
6. A wait is looked at anew when it may be over: when a message of the key is finished or has no lease
   any more, when its lane was read beyond the named offset, and every `PATIENCE` seconds, by ends and by looks at the
   catalog.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from typing import NamedTuple, cast

from kafka_pubsub.lane_names import Lane
from kafka_pubsub.lanes.ends import LaneEnds
from kafka_pubsub.lanes.headers import Name, Sent, read_lane_headers
from kafka_pubsub.lanes.read_ahead import Lift
from kafka_pubsub.log.records import Record
from kafka_pubsub.log.transient import ANSWER_S
from kafka_pubsub.model import StoredRecord, TopicPartition
from kafka_pubsub.partition_id import PartitionId
from kafka_pubsub.subscribe.partition.partition import Partition
from kafka_pubsub.subscribe.retry_topic.layout import Layout

__all__ = ["LaneFollowers", "comes_after"]

#: Seconds between two requests for ends, and between two looks at the waits that they may end.
PATIENCE = 1.0
#: Looks at the catalog of which the last has certainly begun after the first was noted.
LOOKS = 2

log = logging.getLogger("kafka_pubsub.subscriber")


class _Wait(NamedTuple):
    """A key's first message in a lane, which waits for `lane`; `unread`: that must be read on first."""

    offset: int
    sent: Sent | None
    after: Mapping[Lane, Name]
    #: When it was read, and how many looks at the catalog there were by then.
    since: float
    looks: int
    lane: Lane
    unread: bool


class LaneFollowers:
    """The messages of one stream that wait for others of their key (`core.lanes.followers.Names`).

    `owned`: the partitions by number. `looks`: how often the catalog was seen to have no other lanes than the layout.
    """

    def __init__(
        self,
        layout: Callable[[], Layout],
        owned: Mapping[PartitionId, Partition],
        looks: Callable[[], int],
        ends: LaneEnds,
        post: Callable[[Callable[[], None]], None],
    ) -> None:
        self._layout, self._owned, self._looks = layout, owned, looks
        self._ends, self._post = ends, post
        #: By key and number: its first message there, if that waits.
        self._waits: defaultdict[bytes, dict[PartitionId, _Wait]] = defaultdict(dict)
        #: Keys of which something may have changed.
        self._dirty: set[bytes] = set()
        #: By number: offsets up to which keys wait for it to be read.
        self._unread: defaultdict[PartitionId, list[tuple[int, bytes]]] = defaultdict(list)
        #: By number: its end, and when that was asked for.
        self._log_ends: dict[PartitionId, tuple[float, int]] = {}
        #: Messages that left a ring, by number and offset.
        self._freed: set[tuple[PartitionId, int]] = set()
        #: Keys whose messages may have been lifted; by number: the messages that are lifted there, and that were.
        self._lifting: set[bytes] = set()
        self._lifted: defaultdict[PartitionId, list[tuple[int, int, bytes]]] = defaultdict(list)
        self._look_at = 0.0

    # Questions of partitions (`Names`)

    def waiting(self, number: PartitionId, records: Sequence[Record], now: float) -> Collection[int]:
        """Returns the offsets of those of the new records that have something to wait for."""
        keyed = (record for record in records if record.key() is not None)
        waits = (self._wait_of(number, record, now) for record in keyed)
        return [wait.offset for wait in waits if wait is not None]

    def may_wait(self, number: PartitionId, record: Record) -> bool:
        """Returns whether a message waits for another lane."""
        return self._wait_of(number, record, float("inf")) is not None

    def waits(self, number: PartitionId, key: bytes, record: Record, now: float) -> bool:
        """Returns whether the key's first message waits for another lane; `now`: when it was read, if not before."""
        before = self._waits[key].pop(number, None) if key in self._waits else None
        same = before is not None and before.offset == record.offset()
        wait = self._wait_of(number, record, now, before if same else None)
        if wait is not None:
            self._waits[key][number] = wait
            self._lifting.add(key)
            if not same:
                self._dirty.add(key)  # others may know now that it isn't the one that they wait for
            if wait.unread and (lane := self._number(number, wait.lane)) is not None:
                heappush(self._unread[lane], (wait.after[wait.lane].offset, key))
            elif not wait.unread and self._leaves_ring(number, key):
                del self._waits[key][number]
                wait = None
        if not self._waits.get(key, True):
            del self._waits[key]
        return wait is not None

    def changed(self, keys: Iterable[bytes | None]) -> None:
        """Takes note that messages of these keys may be finished."""
        if self._waits:
            self._dirty.update(key for key in keys if key is not None and key in self._waits)

    def reason(self, number: PartitionId, key: bytes) -> str | None:
        """Returns the reason for which the key's first message waits; None: it doesn't."""
        wait = self._waits.get(key, {}).get(number)
        if wait is None:
            return None
        return comes_after(self._layout(), wait.lane, wait.after[wait.lane], unread=wait.unread)

    # Events

    def joined(self, number: PartitionId) -> None:
        """A partition is owned: messages that wait for it, or in it, are looked at anew."""
        self._dirty.update(self._waits)

    def again(self, touched: Iterable[PartitionId], now: float) -> list[tuple[PartitionId, Sequence[bytes]]]:
        """Returns, by number, the keys to be settled anew (rule 6); `touched`: partitions that got an event."""
        for number in touched:
            if (heap := self._unread.get(number)) and (partition := self._owned.get(number)) is not None:
                while heap and heap[0][0] < partition.position:
                    self._dirty.add(heappop(heap)[1])
        if now >= self._look_at and self._waits:
            self._look_at = now + PATIENCE
            self._look(now)
        found: defaultdict[PartitionId, list[bytes]] = defaultdict(list)
        for key in self._dirty:
            for number, wait in list(self._waits.get(key, {}).items()):
                found[number].append(key)
                if self._first(number, key) != wait.offset:  # it moves, or the partition is another owner's
                    del self._waits[key][number]
        self._lifting |= self._dirty
        self._dirty.clear()
        return list(found.items())

    def _look(self, now: float) -> None:
        unread = {
            number: key for key, waits in self._waits.items() for number, wait in waits.items() if wait.unread
        }
        self._dirty.update(unread.values())
        partitions = {number.partition for number in unread}
        places = {
            self._layout().home(number): number for number in self._owned if number.partition in partitions
        }
        if not places:
            return

        def answered(ends: Mapping[TopicPartition, int] | None) -> None:
            found = {places[place]: (now, end) for place, end in (ends or {}).items()}
            self._post(lambda: self._take_ends(found))

        self._ends.ask(list(places), answered, whole=True)

    def _take_ends(self, ends: Mapping[PartitionId, tuple[float, int]]) -> None:
        self._log_ends.update(ends)
        self._dirty.update(key for key, waits in self._waits.items() if any(w.unread for w in waits.values()))

    def wakeup_at(self) -> float | None:
        """Returns when time alone may end a wait; None: never."""
        return self._look_at if self._waits else None

    # The wait of a message

    def _wait_of(
        self, number: PartitionId, record: Record, now: float, before: _Wait | None = None
    ) -> _Wait | None:
        if before is None:
            sent, after = read_lane_headers(cast("StoredRecord", record).headers())
            before = _Wait(record.offset(), sent, after, now, self._looks(), Lane(0, True), unread=True)
        return self._still(number, cast("bytes", record.key()), before) if before.after else None

    def _still(self, number: PartitionId, key: bytes, before: _Wait) -> _Wait | None:
        """Returns the wait of a key's first message as it is now; None: it doesn't wait."""
        if (number, before.offset) in self._freed:
            return None
        found = None
        for lane, name in before.after.items():
            other = self._number(number, lane)
            if other is None:
                if self._looks() < before.looks + LOOKS:
                    return before._replace(lane=lane, unread=True)
                continue
            partition = self._owned.get(other)
            if partition is None or not self._is_read(partition, lane, name, before.since):
                return before._replace(lane=lane, unread=True)
            if found is None and self._is_unfinished(partition, key, before.sent, name):
                found = before._replace(lane=lane, unread=False)
        return found

    def _number(self, number: PartitionId, lane: Lane) -> PartitionId | None:
        """Returns the number of the same partition in another lane; None: this stream doesn't read that lane."""
        return self._layout().number_in(lane, number.partition)

    def _has(self, partition: Partition, name: Name) -> bool:
        """Whether a name's offset is one of this partition's log."""
        return name.log != "" and name.log == self._layout().view(partition.number).topic_id

    def _is_read(self, partition: Partition, lane: Lane, name: Name, since: float) -> bool:
        """Whether a lane was read beyond a named message (rule 1)."""
        position = partition.position
        if not partition.caught_up:
            return False
        if self._has(partition, name) and position > name.offset:
            return True
        asked_at, end = self._log_ends.get(partition.number, (0.0, 0))
        return asked_at > since + (0.0 if lane.durable else ANSWER_S) and position >= end

    def _is_unfinished(self, partition: Partition, key: bytes, sent: Sent | None, name: Name) -> bool:
        """Whether a message of the key, up to the named one, is unfinished in a lane (rule 2)."""
        here = partition.key(key)
        if here.blocked:
            return True
        if self._has(partition, name):
            origins: list[int] = [*here.moving, *([] if here.first is None else [here.first])]
            return min(origins, default=name.offset + 1) <= name.offset
        if here.moving or sent is None:
            return bool(here.moving or here.parked is not None or here.queue)
        if here.parked is not None:  # a message behind it has a higher number, if the publisher is the same
            first = None if here.body is None else _sent(here.body)
            if first is None or first.publisher != sent.publisher or first.number <= name.number:
                return True
        return any(
            each is not None and each.publisher == sent.publisher and each.number <= name.number
            for each in map(_sent, here.queue)
        )

    def _first(self, number: PartitionId, key: bytes) -> int | None:
        """Returns the offset of the key's first message in a lane or its retry topic; None: none waits there."""
        partition = self._owned.get(number)
        return None if partition is None else partition.key(key).first

    # Lifting

    def lift(self) -> set[PartitionId]:
        """Looks at keys of which something has changed; returns the numbers in which their messages are lifted."""
        found = set[PartitionId]()
        for key in self._lifting:
            for number, priority in self._lifts(key).items():
                if (origin := self._origin(number, key)) is not None:
                    heappush(self._lifted[number], (-priority, origin, key))
                    found.add(number)
        self._lifting.clear()
        return found

    def lifted(self, number: PartitionId) -> Lift | None:
        """Returns which message of a lane goes before its turn; of equal ones that with the lowest offset."""
        heap = self._lifted.get(number)
        while heap:
            priority, origin, key = heap[0]
            if self._lifts(key).get(number) == -priority and self._origin(number, key) == origin:
                return Lift(-priority, origin, key)
            heappop(heap)
        return None

    def _origin(self, number: PartitionId, key: bytes) -> int | None:
        return self._owned[number].origin_of(key)

    def _lifts(self, key: bytes) -> dict[PartitionId, int]:
        """Returns the numbers in which a key's messages have a higher priority than their own, with that priority."""
        found = dict[PartitionId, int]()

        def lift(number: PartitionId, priority: int) -> None:
            wait = self._waits.get(key, {}).get(number)
            for lane, name in () if wait is None else wait.after.items():
                other = self._number(number, lane)
                partition = None if other is None else self._owned.get(other)
                if other is None or partition is None or found.get(other, lane.priority) >= priority:
                    continue
                if wait is not None and self._is_unfinished(partition, key, wait.sent, name):
                    found[other] = priority
                    lift(other, priority)

        for number, wait in self._waits.get(key, {}).items():
            if self._first(number, key) == wait.offset:
                lift(number, self._layout().lane(number).priority)
        return found

    # Rings

    def _leaves_ring(self, number: PartitionId, key: bytes) -> bool:
        """Whether a message that waits may go because it is in a ring (rule 4); another one may be let go instead."""
        ring = dict(self._ring(number.partition, key))
        if not ring:
            return False
        here = {(each, wait.sent) for each, wait in ring.items()}
        for other in ring:
            here.update((other, sent) for sent in map(_sent, self._owned[other].key(key).queue))
        said = {(each, sent.publisher, sent.number) for each, sent in here if sent is not None}

        def is_lost(each: PartitionId, wait: _Wait) -> bool:
            publisher, named = "" if wait.sent is None else wait.sent.publisher, wait.after[wait.lane]
            return (self._number(each, wait.lane), publisher, named.number) not in said

        order = sorted(ring, key=lambda each: (not is_lost(each, ring[each]), _number_of(ring[each]), each))
        first = order[0]
        self._dirty.add(key)
        if self._still(first, key, ring[first]) is None:
            return False  # it has nothing to wait for since it was looked at, so there is no ring
        self._freed.add((first, ring[first].offset))
        log.warning(
            "offset %d of %s goes though messages of its key that it comes after may not be finished: those that were "
            "here wait for it in turn. Messages were lost, or came in after they were given up",
            ring[first].offset,
            self._layout().home(first).topic,
        )
        return first == number

    def _ring(self, partition: int, key: bytes) -> Iterator[tuple[PartitionId, _Wait]]:
        """Yields the first message of the key in each lane, by number, if all of them wait for messages here."""
        found: list[tuple[PartitionId, _Wait]] = []
        for number, each in self._owned.items():
            if number.partition != partition:
                continue
            view, wait = each.key(key), self._waits.get(key, {}).get(number)
            first, is_busy = view.first, bool(view.moving or view.blocked)
            if first is None and not is_busy:
                continue
            if is_busy or wait is None or wait.unread or first != wait.offset:
                return
            found.append((number, wait))
        yield from found


def comes_after(layout: Layout, lane: Lane, name: Name, *, unread: bool = False) -> str:
    """Returns the reason for which a message waits that names another one."""
    state = "isn't read yet" if unread else "isn't finished"
    return f"comes after offset {name.offset} of {layout.topic_of(lane)}, which {state}"


def _sent(record: Record) -> Sent | None:
    return read_lane_headers(cast("StoredRecord", record).headers())[0]


def _number_of(wait: _Wait) -> int:
    return 0 if wait.sent is None else wait.sent.number
