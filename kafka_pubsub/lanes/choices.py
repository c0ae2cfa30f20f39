"""Chooses which lane's messages are handed out next, for the partitions that a stream owns.

Theory. Each lane of a partition is a core partition of its own, which knows which messages wait in it and which may go.
Of every partition of the topic a `LaneMerge` chooses among its lanes. Messages are told to the merge as they come to
wait, and go; before each choice it is told which message each lane can deliver first.

Rules
1. Among the partitions of the topic, the one whose choice has the highest priority goes first; equal ones take turns.
   An aged message goes in the turn of its partition. Messages also age while other partitions are
   served: a partition whose message has waited too long gets one turn in ten.
2. Only as much is handed out as begins soon (`WorkerPool.soon`): a message that was handed out isn't overtaken any
   more.
3. Ends are asked for by one request for all partitions; while it is unanswered there is no other, for a second.
4. A lane that hands out nothing though it was chosen is passed over until something happens to it.
5. A partition that was taken on hands out nothing until all its lanes may begin: each reads its retry topic first. It
   waits for that for `START` seconds at most.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple, cast

from kafka_pubsub.lane_names import Lane
from kafka_pubsub.lanes.cuts import LaneCuts
from kafka_pubsub.lanes.ends import LaneEnds
from kafka_pubsub.lanes.following import LaneFollowers
from kafka_pubsub.lanes.headers import Sent, read_lane_headers
from kafka_pubsub.lanes.merge import DUE, Choice, LaneMerge
from kafka_pubsub.log.ports import LogReader
from kafka_pubsub.log.records import Record
from kafka_pubsub.model import StoredRecord, TopicPartition
from kafka_pubsub.partition_id import PartitionId
from kafka_pubsub.subscribe.chooser import Batches, Handle, OldestFirst
from kafka_pubsub.subscribe.lane_windows import LaneWindows
from kafka_pubsub.subscribe.owned_partitions import OwnedPartitions
from kafka_pubsub.subscribe.partition.events import Demand, Followed
from kafka_pubsub.subscribe.partition.partition import Partition
from kafka_pubsub.subscribe.retry_topic.layout import Layout
from kafka_pubsub.subscribe.workers.thread_workers import WorkerPool

__all__ = ["LaneChoices", "LaneSource"]

Entry = tuple[int, int, StoredRecord]

#: Of so many choices one goes to the partition that waits longest, if it waits for long.
SHARE = 10
#: Seconds after which a request for ends is given up.
PATIENCE = 1.0
#: The kind of a record's time that its broker has set; a topic's records have it from before it has lanes.
BROKER_TIME = 2
#: Seconds by which a head ages early, for the way to its callback: it is read, waits for its partition's turn, and for
#: callbacks that run.
EARLY = 0.05
#: Seconds for which the lanes of a partition wait for each other at its start.
START = 5.0


class LaneSource(NamedTuple):
    """The parts of a stream that its lanes use. `layout` returns its topics; `post` hands a call to the runner.

    `bound`: seconds of ageing, None: strict priorities. `ordered`: whether keys set an order. `looks`: how often the
    catalog was seen to have no other lanes than these.
    """

    layout: Callable[[], Layout]
    ends: LaneEnds
    post: Callable[[Callable[[], None]], None]
    bound: float | None
    ordered: bool
    looks: Callable[[], int]


class LaneChoices:
    """The merges of one stream, whose topic may have lanes."""

    def __init__(self, source: LaneSource, max_bytes: int = 0) -> None:
        self._source = source
        #: Chooses while the topic has no lanes.
        self._without_lanes = OldestFirst()
        #: How much of each lane is read ahead.
        self.windows = LaneWindows(max_bytes)
        self._sides: dict[PartitionId, _Side] = {}
        self._groups: dict[int, _Group] = {}
        self._followers: LaneFollowers | None = None
        #: Partitions whose lanes hold up a choice though nothing more may come: a reader may have passed markers.
        self.stuck: Sequence[PartitionId] = ()
        #: Whether messages wait that go soon, though nothing more is read.
        self.choosing = False
        self._count = 0
        self._asked_at: float | None = None

    def watch(self, partitions: OwnedPartitions) -> None:
        """Holds messages of these partitions for others in other lanes, where keys set an order; none is owned yet."""
        source = self._source
        if source.ordered:
            self._followers = LaneFollowers(
                source.layout, partitions.owned, source.looks, source.ends, source.post
            )
            partitions.names = self._followers

    @property
    def active(self) -> bool:
        """Whether the topic has lanes."""
        return self._source.layout().laned

    @property
    def windows_in_use(self) -> LaneWindows | None:
        """The windows of the lanes; None: the topic has none."""
        return self.windows if self.active else None

    @property
    def turned(self) -> bool:
        """Whether lanes are to be read further ahead, or less, than before."""
        return self.windows.turned

    @property
    def asking(self) -> bool:
        """Whether a request for the ends of lanes is unanswered."""
        return self._asked_at is not None

    @property
    def ordered(self) -> bool:
        """Whether keys set an order."""
        return self._source.ordered

    def lane(self, number: PartitionId) -> Lane:
        """Returns the lane of a partition; any thread may call it."""
        return self._layout().lane(number)

    def _layout(self) -> Layout:
        return self._source.layout()

    # Choices

    def deliver(
        self,
        partitions: OwnedPartitions,
        free: int,
        worker_pool: WorkerPool,
        handle: Handle,
        now: float,
        *,
        inline: int = 0,
    ) -> bool:
        """Hands out leases in the order of the lanes, if the topic has any; returns whether there were any.

        `inline`: the caller takes about so many messages itself, where keys set no order: one lease of each partition,
        until one is long.
        """
        if not self.active:
            return self._without_lanes.deliver(partitions, free, worker_pool, handle, now, inline=inline)
        inline = 0 if self.ordered else inline
        wanted, run = (free, inline) if inline else worker_pool.soon(free)
        self._look(partitions, handle, now)
        handed = self._hand_out_all(wanted, run, handle, now, inline=inline > 0)
        self._look(partitions, handle, now)
        self.stuck = [
            group.sides[lane].number
            for group in self._groups.values()
            for lane in group.merge.wants_read(now)
        ]
        self._read_ahead(now)
        self._ask_ends(now)
        groups = self._groups.values()
        self.choosing = not self.stuck and any(each.merge.next(now) or each.merge.waits for each in groups)
        return handed

    def _read_ahead(self, now: float) -> None:
        """Says which lanes are to be read far ahead."""
        self.windows.want(self.stuck)
        for group in self._groups.values():
            choice = group.merge.next(now)
            if choice is not None and not choice.aged and choice.key is None:
                number, priority = group.sides[choice.lane].number, choice.lane.priority
                self.windows.go(number, group.merge.read_ahead_to(priority), now)

    def _hand_out_all(self, wanted: int, run: int, handle: Handle, now: float, *, inline: bool) -> bool:
        line = [each for each in (group.standing(now) for group in self._groups.values()) if each]
        heapify(line)
        handed = False
        while wanted > 0 and line:
            group = self._overdue(now) or line[0][-1]
            if group is line[0][-1]:
                heappop(line)
            else:
                line = [each for each in line if each[-1] is not group]
                heapify(line)
            choice, priority = group.merge.next(now), group.merge.turn
            assert choice is not None
            wanted = 1 if inline and choice.most >= run else wanted  # one long run is enough
            leases = self._hand_out(group, choice, 1 if inline else wanted, run, handle, now, inline=inline)
            if leases:
                self._count += 1
                group.served = self._count
                handed, wanted = True, wanted - leases
                for other in () if choice.aged else line:
                    other[-1].merge.pass_over(priority, now)
            standing = None if inline else group.standing(now)
            if standing:
                heappush(line, standing)
        return handed

    def _overdue(self, now: float) -> _Group | None:
        """Returns the partition that has been passed over for longest, once in a while (rule 1)."""
        if self._source.bound is None or self._count % SHARE or len(self._groups) < 2:
            return None
        late = [
            (since, group.served, id(group), group)
            for group in self._groups.values()
            if (since := group.late_since(now)) is not None
        ]
        return min(late)[-1] if late else None

    def _hand_out(
        self,
        group: _Group,
        choice: Choice,
        wanted: int,
        run: int,
        handle: Handle,
        now: float,
        *,
        inline: bool = False,
    ) -> int:
        """Returns the number of leases that were handed out of the chosen lane."""
        side = group.sides[choice.lane]
        run = min(run, choice.most)
        limit = max(1, min(wanted, choice.most // run))
        below = choice.below if choice.key is None else 0
        demand = Demand(limit, run, inline=inline, below=below, key=choice.key)
        gone, begun, leases = side.take(lambda: handle(side.number, demand))
        if begun:
            group.merge.took(gone, now, due=begun - len(gone))
            side.look(full=False)
        else:
            group.merge.offer(choice.lane, None)  # rule 4
        return leases

    # Messages that go as soon as they are read

    def cut(
        self,
        batches: Batches,
        layout: Layout,
        partitions: OwnedPartitions,
        reader: LogReader,
        post: Callable[[Callable[[], None]], None],
    ) -> tuple[Batches, int]:
        """Returns the records of each lane that are kept, and how many these are; the rest is read again."""
        if not self.active:
            return batches, sum(map(len, batches.values()))
        return LaneCuts(self.windows, partitions, reader, post).cut(batches, layout)

    def sort(self, batches: Batches) -> Iterable[tuple[PartitionId, Sequence[Record]]]:
        """Returns the batches, the highest priorities first."""
        if not self.active:
            return batches.items()
        lanes = self._layout().lanes
        return sorted(batches.items(), key=lambda each: -lanes[each[0].lane].priority)

    def passes(self, number: PartitionId, last: int, now: float) -> bool:
        """Whether a lane's messages up to an offset go before all that waits, so that they needn't wait themselves."""
        if not self.active:
            return True
        side = self._sides.get(number)
        if side is None or not side.begins or not side.merge.passes(side.lane, last, now):
            return False
        for group in self._groups.values():
            choice = group.merge.next(now)
            if group.waits_until != 0 or (
                choice is not None and (choice.aged or group.merge.turn > side.lane.priority)
            ):
                return False
        return True

    def passed(self, number: PartitionId, count: int, now: float) -> None:
        """So many messages of a lane, if the topic has any, went as soon as they were read."""
        if not count or not self.active:
            return
        side = self._sides[number]
        side.merge.pass_through(side.lane, side.partition.position, count, now)
        self.windows.go(number, side.merge.read_ahead_to(side.lane.priority), now)

    # Events of partitions

    def waiting(self, number: PartitionId, records: Sequence[Record], now: float) -> Collection[int]:
        """Returns the offsets of those of the new records that wait for others of their key in other lanes."""
        # Brokers date the messages since the topic may have lanes, maybe before this stream knows of one.
        if self._followers is None or cast("StoredRecord", records[-1]).timestamp()[0] != BROKER_TIME:
            return ()
        return self._followers.waiting(number, records, now)

    def _look(self, partitions: OwnedPartitions, handle: Handle, now: float) -> None:
        owned, touched = partitions.owned, partitions.attention.take_touched()
        followers = self._followers
        for number in touched:
            partition, side = owned.get(number), self._sides.get(number)
            if side is not None and side.partition is not partition:
                self._forget(side)
                side = None
            if partition is not None and side is None:
                self._add(number, partition)
        for number, keys in [] if followers is None else followers.again(touched, now):
            handle(number, Followed(keys))
            touched.add(number)
        touched |= set() if followers is None else followers.lift()
        for number in touched:
            if (side := self._sides.get(number)) is not None:
                self._look_at(side, owned)

    def _look_at(self, side: _Side, owned: Collection[PartitionId]) -> None:
        partition = side.partition
        full = self.windows.is_full(partition.unfinished, partition.buffered, owned)
        self.windows.block(side.number, full=side.look(full=full))

    def _add(self, number: PartitionId, partition: Partition) -> None:
        lane = self._layout().lanes[number.lane]
        group = self._groups.setdefault(number.partition, _Group(self._source.bound))
        log, followers = self._layout().view(number).topic_id, self._followers
        side = _Side(group.merge, lane, number, partition, log, followers)
        group.sides[lane] = self._sides[number] = side
        if followers is not None:
            followers.joined(number)

    def _forget(self, side: _Side) -> None:
        del self._sides[side.number]
        self.windows.forget(side.number)
        group = self._groups[side.number.partition]
        del group.sides[side.lane]
        side.leave()
        if not group.sides:
            del self._groups[side.number.partition]

    # Ends

    def _ask_ends(self, now: float) -> None:
        """Asks for the ends of lanes if a choice wants them."""
        if self._asked_at is not None and now < self._asked_at + PATIENCE:
            return
        if not any(group.merge.wants_ends(now) for group in self._groups.values()):
            return
        self._asked_at = now
        layout, asked = self._layout(), dict[_Group, int]()
        places: list[TopicPartition] = []
        for group in self._groups.values():
            asked[group] = group.merge.ask(now)
            places += [layout.home(side.number) for side in group.sides.values()]

        def answered(ends: Mapping[TopicPartition, int] | None) -> None:
            self._source.post(lambda: self._answered(layout, asked, now, ends))

        self._source.ends.ask(places, answered)

    def _answered(
        self,
        layout: Layout,
        asked: Mapping[_Group, int],
        asked_at: float,
        ends: Mapping[TopicPartition, int] | None,
    ) -> None:
        if self._asked_at == asked_at:
            self._asked_at = None
        if ends is None:
            return
        for group, request in asked.items():
            places = {lane: layout.home(side.number) for lane, side in group.sides.items()}
            group.merge.ends(request, {lane: ends[place] for lane, place in places.items() if place in ends})

    def close(self) -> None:
        """Asks no more."""
        self._source.ends.close()

    def wakeup_at(self) -> float | None:
        """Returns when time alone may change a choice; None: never."""
        if not self.active:
            return None
        groups = self._groups.values()
        times = [group.waits_until if group.waits_until else group.merge.wakeup_at() for group in groups]
        if self._followers is not None:
            times.append(self._followers.wakeup_at())
        return min((time for time in times if time is not None), default=None)

    def check(self) -> None:
        """Raises `InvariantViolated` if a merge contradicts itself."""
        for group in self._groups.values():
            group.merge.check()


class _Group:
    """The lanes of one partition of the topic."""

    def __init__(self, bound: float | None) -> None:
        self.merge: LaneMerge[StoredRecord] = LaneMerge(
            _sent, None if bound is None else bound - min(EARLY, bound / 10)
        )
        self.sides: dict[Lane, _Side] = {}
        #: The number of choices when it was served last.
        self.served = 0
        #: Until when its lanes wait for each other (rule 5); 0: they don't. None: that isn't known yet.
        self.waits_until: float | None = None

    def standing(self, now: float) -> tuple[int, int, int, _Group] | None:
        """Returns the place of its choice among those of the other partitions; None: it has none."""
        if self.waits_until is None:
            self.waits_until = now + START
        if self.waits_until and (now >= self.waits_until or all(each.begins for each in self.sides.values())):
            self.waits_until = 0.0
        choice = None if self.waits_until else self.merge.next(now)
        if choice is None:
            return None
        # A message that goes out of turn goes in the turn of its partition: behind all others it would age once more.
        return -self.merge.turn, self.served, id(self), self

    def late_since(self, now: float) -> float | None:
        """Returns since when its choice was passed over by other partitions, if that is for too long."""
        choice, ageing = None if self.waits_until else self.merge.next(now), self.merge.ageing
        if choice is None or choice.aged or choice.lane.priority not in ageing.aged(now):
            return None
        return ageing.passed[choice.lane.priority][0]


class _Side:
    """One lane of one partition: tells the merge the changes in the core partition's queues."""

    def __init__(
        self,
        merge: LaneMerge[StoredRecord],
        lane: Lane,
        number: PartitionId,
        partition: Partition,
        log: str,
        followers: LaneFollowers | None,
    ) -> None:
        self.merge = merge
        self._followers = followers
        self.lane = lane
        self.number = number
        self.partition = partition
        #: Offsets that went to leases since a choice; None: none is being carried out.
        self._gone: list[int] | None = None
        waiting, start = partition.watch(self), partition.position
        merge.add(lane, min([start, *(record.offset() for record in waiting[:1])]), log)
        merge.receive(lane, _entries(waiting))

    def leave(self) -> None:
        """Ends the notes."""
        self.partition.unwatch(self)
        self.merge.forget(self.lane)

    @property
    def begins(self) -> bool:
        """Whether its partition may hand something out."""
        return self.partition.may_begin

    def look(self, *, full: bool) -> bool:
        """Tells the merge the first message of the lane, and how far it was read; returns whether it is full.

        `full`: it holds enough, so it holds up no other lane if nothing of it can be delivered.
        """
        partition, merge, lane = self.partition, self.merge, self.lane
        merge.reach(lane, partition.position)
        first = DUE if partition.parked_ready else partition.oldest
        full = full and first is None
        if self.begins and not full:
            merge.resume(lane)
            merge.offer(lane, first, None if self._followers is None else self._followers.lifted(self.number))
        else:
            merge.pause(lane)
        return full

    def take(self, hand_out: Callable[[], None]) -> tuple[list[int], int, int]:
        """Carries out a choice; returns the offsets that went, and how many messages and leases were handed out."""
        partition = self.partition
        self._gone, handed, count = [], partition.handed, len(partition.active)
        try:
            hand_out()
            return self._gone, partition.handed - handed, len(partition.active) - count
        finally:
            self._gone = None

    # Changes of the queues (`key_queues.Watch`)

    def came(self, records: Sequence[Record]) -> None:
        position = self.merge.position(self.lane)
        entries = _entries(records)
        self.merge.receive(self.lane, [each for each in entries if each[0] >= position])
        if late := [each for each in entries if each[0] < position]:  # they were to pass, and didn't begin
            self.merge.put_back(self.lane, late)

    def went(self, records: Sequence[Record]) -> None:
        offsets = [record.offset() for record in records]
        if self._gone is not None:
            self._gone += offsets
        elif offsets:
            self.merge.drop(self.lane, offsets)

    def came_back(self, records: Sequence[Record]) -> None:
        if records:
            self.merge.put_back(self.lane, _entries(records))


def _entries(records: Sequence[Record]) -> list[Entry]:
    stored = cast("Sequence[StoredRecord]", records)
    return [(record.offset() or 0, record.timestamp()[1], record) for record in stored]


def _sent(record: StoredRecord) -> Sent | None:
    return read_lane_headers(record.headers())[0]
