"""How much of each lane is read ahead: much of the lanes that go now, little of those that higher ones hold up.

Theory. A choice among lanes needs the head of each. So no lane may wait for room that others take: each lane of each
partition has a window of its own, and is paused alone. A lane is *wide* while its messages go in turn: it may hold
what a topic without lanes holds. Another lane is *narrow*: some messages wait here for their turn, the rest stays in
the log.

Rules
1. A lane is wide if its priority goes in its partition or is above that, for `WIDE_FOR` seconds after it went, and
   while a choice waits for more of it. Before anything went, all are narrow. A lane that a choice waits for is never
   paused. A lane that is full of messages that can't begin is wide, too: what can begin may stand behind them, and they
   move behind the retry partition as in a topic without lanes.
2. Wide lanes share the bytes that narrow ones leave, and half of all at the least; narrow lanes share half of all.
3. When the wide lanes of all partitions are full, fetching waits for a moment; if that doesn't help, the full ones are
   paused. Those far ahead, and full narrow ones, are paused at once.
4. A paused lane resumes when it is far below its window, so that pauses are rare: each throws away what the log's
   client has fetched ahead.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from kafka_pubsub.partition_id import PartitionId
from kafka_pubsub.subscribe.fetch_window import AHEAD, ENOUGH, FULL, WINDOW, Change, Held

__all__ = ["LEAST", "NARROW", "WIDE_FOR", "LaneWindows"]

#: Records that a narrow lane of a partition may hold.
NARROW = 64
#: Seconds for which a lane stays wide after it went: lanes that take turns aren't paused each time.
WIDE_FOR = 1.0
#: Above every priority.
_NONE_GOES = 2**63
#: Fewer records than this aren't worth a read.
LEAST = 500


class LaneWindows:
    """The windows of the lanes of one stream, by the number of the lane's partition."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        #: Lanes of which a choice needs more.
        self.wanted: Collection[PartitionId] = ()
        #: Whether a lane became wide since `change`, so that it is worth calling.
        self.turned = False
        self._now = 0.0
        #: By partition: the priority that goes; by number: the lane's priority, and when it went last.
        self._going: dict[int, int] = {}
        self._priorities: dict[PartitionId, int] = {}
        self._went: dict[PartitionId, float] = {}
        #: Lanes that are full of messages that can't begin.
        self._blocked: set[PartitionId] = set()

    def come(self, number: PartitionId, priority: int) -> None:
        """Messages of a lane were read; the thread that reads calls this."""
        self._priorities[number] = priority

    def go(self, number: PartitionId, down_to: int, now: float) -> None:
        """A lane's messages go in turn; those of lower priorities, `down_to` this one, go soon."""
        self._now = self._went[number] = now
        partition = number.partition
        if self._going.get(partition) != down_to:
            self._going[partition] = down_to
            self.turned = True

    def block(self, number: PartitionId, *, full: bool) -> None:
        """Notes whether a lane is full of messages that can't begin."""
        if full != (number in self._blocked):
            self._blocked ^= {number}
            self.turned = True

    def want(self, numbers: Collection[PartitionId]) -> None:
        """Notes of which lanes more must be read before the next choice."""
        self.turned = self.turned or not set(numbers) <= set(self.wanted)
        self.wanted = numbers

    def forget(self, number: PartitionId) -> None:
        """A lane's partition has gone."""
        self._went.pop(number, None)
        self._blocked.discard(number)

    def is_wide(self, number: PartitionId) -> bool:
        """Whether a lane may be read far ahead (rule 1)."""
        if self._priorities.get(number, 0) >= self._going.get(number.partition, _NONE_GOES):
            return True
        if number in self.wanted or number in self._blocked:
            return True
        return self._went.get(number, -WIDE_FOR) > self._now - WIDE_FOR

    def is_full(self, records: int, size: int, owned: Collection[PartitionId]) -> bool:
        """Whether a lane of which nothing may begin holds enough: no choice waits for more of it."""
        return records >= NARROW or size >= self.narrow_bytes(owned)

    def narrow_bytes(self, owned: Collection[PartitionId]) -> int:
        """Returns the bytes that a narrow lane may hold."""
        return self._max_bytes // 2 // max(1, len(owned))

    def room(
        self,
        held: Mapping[PartitionId, Held],
        owned: Collection[PartitionId],
        paused: Collection[PartitionId],
    ) -> int:
        """Returns how many records may be fetched now (rule 3)."""
        full = int(FULL * WINDOW)
        room = dict.fromkeys((number.partition for number in owned), full)
        share = self._share(held)
        for number in self._flowing(held, paused):
            some = held[number]
            taken = full if some.bytes >= FULL * share else some.records
            partition = number.partition
            # The fullest counts alone: it can be paused, and then there is room.
            room[partition] = max(0, min(room.get(partition, 0), full - taken))
        return sum(room.values())

    def change(
        self,
        held: Mapping[PartitionId, Held],
        owned: Collection[PartitionId],
        paused: Collection[PartitionId],
        *,
        waited: bool,
    ) -> Change[PartitionId]:
        """Returns which lanes to pause and resume; `waited`: waiting for room hasn't helped."""
        self.turned = False
        full = waited and self.room(held, owned, paused) < LEAST
        share, narrow = self._share(held), self.narrow_bytes(owned)
        pause: list[PartitionId] = []
        resume = [number for number in paused if number in owned and number not in held]
        for number, some in held.items():
            wide = self.is_wide(number)
            level = max(some.records / (WINDOW if wide else NARROW), some.bytes / (share if wide else narrow))
            if number in paused:
                if level <= ENOUGH or number in self.wanted:
                    resume.append(number)
            elif number not in self.wanted and level >= ((FULL if full else AHEAD) if wide else 1):
                pause.append(number)
        return Change(pause, resume)

    def _share(self, held: Mapping[PartitionId, Held]) -> float:
        """Returns the bytes that each wide lane may hold (rule 2)."""
        wide = sum(map(self.is_wide, held))
        narrow = sum(some.bytes for number, some in held.items() if not self.is_wide(number))
        return max(self._max_bytes - narrow, self._max_bytes / 2) / max(1, wide)

    def _flowing(
        self, held: Mapping[PartitionId, Held], paused: Collection[PartitionId]
    ) -> Iterator[PartitionId]:
        return (number for number in held if number not in paused and self.is_wide(number))
