"""The log of ingest: messages that come in, and the ticks that say when they did.

Theory. Time is in the log, and is the highest tick read so far. A tick says how far its router had read. A message
came in at the time of the first tick whose router had read it. So a message that was read waits for a tick before
anything can be decided about it. Where very many messages wait for one (no router ran for a while) they aren't kept:
the log is read on until the tick is found, and then once more from there.

Rules
1. What a message's times are follows from the log alone, however often it is read.
2. A relative delay counts from the time at which the message came in; `due` is never before that. A tick may be stored
   long after it was made, so it says nothing of messages that its router hadn't read.
3. Time is that of the first tick that was found as soon as the log is read once more, and that of each further one when
   the messages of which the one before says something have come. What is handled before them came in at that time or
   before, and with a lower offset.
4. The time at a position is the highest tick below it; it is stored with the position, because the tick may be trimmed.
5. A request to cancel counts if its message is due after the time at which the request came in.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from kafka_pubsub.core.delays.values import Came, Tick, Waiting
from kafka_pubsub.errors import InvariantViolated

__all__ = ["KEEP", "Ingest", "due_of"]

#: Bytes that a message takes here beside its body.
_BESIDE = 600
#: Units beyond the longest delay that are waited out in memory: the publisher's clock may be ahead of the router's.
_BEYOND = 600
#: Bytes of messages without a tick that are kept.
KEEP = 4 * 1024 * 1024


def due_of(message: Came, now: int) -> int:
    """Returns when a message is due that comes in now."""
    due = now + message.delay if message.due is None and message.delay is not None else message.due
    return max(now, now if due is None else due)


class Ingest:
    """The log of ingest, from a position on; `time` is the time there."""

    def __init__(self, position: int, time: int, unit: int, tiers: int, keep: int) -> None:
        self.time = time
        #: Everything below it was read.
        self.read = position
        #: With a tick, and not handled yet.
        self.arrived: deque[Waiting] = deque()
        #: About so many bytes do they take.
        self.size = 0
        #: From where the log must be read once more; None: it is read on.
        self.seek: int | None = None
        self._unit, self._tiers, self._kept_size = unit, tiers, keep
        # Read, and without a tick yet.
        self._came: deque[Came] = deque()
        self._came_size = 0
        # The first message that wasn't kept; None: all were.
        self._dropped: int | None = None
        # The ticks that were found by reading ahead, in their order. Empty: none is needed.
        self._ahead: deque[Tick] = deque()
        # Ticks above the stored position by which the time rose, and the time at that position.
        self._ticks: deque[Tick] = deque()
        self._stored_time = time

    @property
    def asks(self) -> bool:
        """Whether messages were read that have no tick yet."""
        return bool(self._came) or self._dropped is not None

    @property
    def position(self) -> int:
        """The first message that wasn't handled, or where reading goes on."""
        if self.arrived:
            return self.arrived[0].position
        if self._came:
            return self._came[0].offset
        return self.read if self._dropped is None else self._dropped

    def time_at(self, position: int) -> int:
        """The time at a position, which never goes back from one call to the next."""
        while self._ticks and self._ticks[0].offset < position:
            self._stored_time = self._ticks.popleft().time
        return self._stored_time

    def receive(self, records: Sequence[Came | Tick]) -> None:
        """Takes what was read, in the order of the log; what was read before is left out."""
        for record in records:
            if record.offset < self.read:
                continue
            self.read = record.offset + 1
            if isinstance(record, Tick):
                self._tick(record)
            elif self._dropped is None:
                self._find_tick(record.offset)
                if self._ahead:
                    self._arrive(record)
                else:
                    self._keep(record)
            if self._dropped is not None and self._ahead and self._knows_enough(self._dropped):
                self._go_back(self._dropped)
                return

    def reach(self, position: int) -> None:
        """Nothing below the position is left to be read."""
        self.read = max(self.read, position)
        if self._dropped is None:
            self._find_tick(self.read)

    def sought(self) -> None:
        """The log is read from `seek` on now."""
        self.seek = None

    def take(self) -> Waiting:
        """The first message, which is handled now."""
        message = self.arrived.popleft()
        self.size -= _BESIDE + len(message.record)
        return message

    def _keep(self, message: Came) -> None:
        self._came.append(message)
        self._came_size += _BESIDE + len(message.record)
        if self._came_size > self._kept_size:
            self._dropped = self._came[0].offset
            self._came.clear()
            self._came_size = 0

    def _tick(self, tick: Tick) -> None:
        if self._dropped is not None and (self._ahead or tick.read > self._dropped):
            self._ahead.append(tick)
            return
        self._rise(tick)
        if self._dropped is None:
            while self._came and self._came[0].offset < tick.read:
                message = self._came.popleft()
                self._came_size -= _BESIDE + len(message.record)
                self._arrive(message)

    def _rise(self, tick: Tick) -> None:
        if tick.time > self.time:
            self.time = tick.time
            self._ticks.append(tick)

    def _knows_enough(self, dropped: int) -> bool:
        """Whether the ticks that were found say something of so many messages that it is worth going back."""
        ahead = self.read - dropped
        known = max(tick.read for tick in self._ahead) - dropped
        return 2 * known >= ahead or ahead > 2 * (self._ahead[0].offset - dropped)

    def _go_back(self, dropped: int) -> None:
        self.seek = self.read = dropped
        self._dropped = None
        self._rise(self._ahead[0])

    def _find_tick(self, offset: int) -> None:
        """Passes over the ticks that say nothing of the messages from an offset on."""
        while self._ahead and self._ahead[0].read <= offset:
            self._ahead.popleft()
            if self._ahead:
                self._rise(self._ahead[0])

    def _arrive(self, message: Came) -> None:
        """Decides the message's times: it came in now."""
        now, home = self.time, message.home
        target = message.target
        # A request that comes too late keeps its time, so it finds no message.
        due = due_of(message, now) if target < 0 else message.due or 0
        # A request to cancel must be in memory before its message is due.
        left = (due - (1 if target >= 0 else 0) - now) // self._unit
        most = (1 << self._tiers) - 1
        if left > most + _BEYOND:
            due, left, home = now, 0, None
        left = min(max(0, left), most)
        offset, record = message.offset, message.record
        self.arrived.append(Waiting(now, offset, due, left, home, offset, record, target))
        self.size += _BESIDE + len(message.record)

    def check(self) -> None:
        """Raises `InvariantViolated` if it contradicts itself."""
        offsets = [each.offset for each in self.arrived] + [each.offset for each in self._came]
        if offsets != sorted(set(offsets)) or (offsets and offsets[-1] >= self.read):
            raise InvariantViolated(f"ingest was read up to {self.read} and holds {offsets}")
        if [each.at for each in self.arrived] != sorted(each.at for each in self.arrived):
            raise InvariantViolated("messages came in at times that go back")
        if self.arrived and self.arrived[-1].at > self.time:
            raise InvariantViolated("a message came in before its time")
