"""The log of ingest: messages that come in, and the time that the brokers' stamps tell.

Theory. Brokers stamp the records of ingest with their time (LogAppendTime). Time is the highest stamp that was read so
far, and a message came in at the time at its own offset. So everything follows from the log, whenever it is read and by
which router. Ticks are records without content: they let time go on while no messages come.

Rules
1. What a message's times are follows from the log alone, however often it is read. Clocks of routers and publishers,
   and what a record says of times, count for nothing.
2. A relative delay counts from the time at which the message came in; `due` is never before that.
3. The time at the committed position is stored with it, because the records below may be trimmed. Where a message
   lies at that position, this is the time at which it came in: then no other stamps need to be remembered.
4. A request to cancel counts if its message is due after the time at which the request came in. Another one is left
   out: its message may still wait, for a home that takes none.
5. A record that no broker stamped (ingest had CreateTime when it was stored) moves no time, and comes in with the first
   record behind it that a broker did stamp. If more such records wait than are kept, the log is read on until that
   record is found, and then once more from there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from kafka_pubsub.delays.values import Came, Tick, Waiting
from kafka_pubsub.errors import InvariantViolated

__all__ = ["KEEP", "Ingest", "due_of"]

#: Bytes that a message takes here beside its body.
_BESIDE = 600
#: Units beyond the longest delay that are waited out in memory: the publisher's clock may differ from the brokers'.
_BEYOND = 600
#: Bytes of messages without a stamp that are kept.
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
        #: Dated, and not handled yet.
        self.arrived: deque[Waiting] = deque()
        #: About so many bytes do they take.
        self.size = 0
        #: From where the log must be read once more; None: it is read on.
        self.seek: int | None = None
        #: Whether a message that was read is longer than the tiers; the caller sets it back.
        self.longer = False
        #: The stamp of the last record that has one; None: none was read.
        self.stamp: int | None = None
        self._unit, self._tiers, self._kept_size = unit, tiers, keep
        # Read, and without a stamp. Empty, as a rule: brokers stamp all records.
        self._undated: deque[Came] = deque()
        self._undated_size = 0
        # The first message without a stamp that wasn't kept; None: all were.
        self._dropped: int | None = None
        # The first stamped record behind those that weren't kept; None: none is needed, or it wasn't found yet.
        self._ahead: Tick | None = None

    @property
    def undated(self) -> bool:
        """Whether messages were read that have no time yet."""
        return bool(self._undated) or self._dropped is not None

    @property
    def position(self) -> int:
        """The first message that wasn't handled, or where reading goes on."""
        if self.arrived:
            return self.arrived[0].position
        if self._undated:
            return self._undated[0].offset
        return self.read if self._dropped is None else self._dropped

    def receive(self, records: Sequence[Came | Tick]) -> None:
        """Takes what was read, in the order of the log; what was read before is left out."""
        for record in records:
            if record.offset < self.read:
                continue
            self.read = record.offset + 1
            if record.stamp is not None:
                self.stamp = record.stamp
                if self._dropped is not None:
                    self._go_back(self._dropped, record.offset, record.stamp)
                    return
                self._date(record.stamp)
                if isinstance(record, Came):
                    self._arrive(record)
            elif isinstance(record, Came) and self._dropped is None:
                self._take_undated(record)

    def reach(self, position: int) -> None:
        """Nothing below the position is left to be read."""
        self.read = max(self.read, position)

    def sought(self) -> None:
        """The log is read from `seek` on now."""
        self.seek = None

    def take(self) -> Waiting:
        """The first message, which is handled now."""
        message = self.arrived.popleft()
        self.size -= _BESIDE + len(message.record)
        return message

    def _take_undated(self, message: Came) -> None:
        if self._ahead is not None and message.offset < self._ahead.offset:
            self._rise(self._ahead.stamp or 0)
            self._arrive(message)
            return
        self._undated.append(message)
        self._undated_size += _BESIDE + len(message.record)
        if self._undated_size > self._kept_size:
            self._dropped = self._undated[0].offset
            self._undated.clear()
            self._undated_size = 0

    def _go_back(self, dropped: int, offset: int, stamp: int) -> None:
        self._ahead = Tick(offset, stamp)
        self.seek = self.read = dropped
        self._dropped = None

    def _date(self, stamp: int) -> None:
        """A record with this stamp dates itself, and all before it that have none."""
        self._rise(stamp)
        while self._undated:
            self._arrive(self._undated.popleft())
        self._undated_size = 0

    def _rise(self, stamp: int) -> None:
        self.time = max(self.time, stamp)

    def _arrive(self, message: Came) -> None:
        """Decides the message's times: it came in now."""
        now, home = self.time, message.home
        target = message.target
        due = due_of(message, now) if target < 0 else message.due or 0
        if target >= 0 and due <= now:
            return
        # A request to cancel must be in memory before its message is due.
        left = (due - (1 if target >= 0 else 0) - now) // self._unit
        most = (1 << self._tiers) - 1
        self.longer = self.longer or left > most
        if left > most + _BEYOND:
            due, left, home = now, 0, None
        left = min(max(0, left), most)
        offset, record = message.offset, message.record
        self.arrived.append(Waiting(now, offset, due, left, home, offset, record, target))
        self.size += _BESIDE + len(message.record)

    def check(self) -> None:
        """Raises `InvariantViolated` if it contradicts itself."""
        offsets = [each.offset for each in self.arrived] + [each.offset for each in self._undated]
        if offsets != sorted(set(offsets)) or (offsets and offsets[-1] >= self.read):
            raise InvariantViolated(f"ingest was read up to {self.read} and holds {offsets}")
        if [each.at for each in self.arrived] != sorted(each.at for each in self.arrived):
            raise InvariantViolated("messages came in at times that go back")
        if self.arrived and self.arrived[-1].at > self.time:
            raise InvariantViolated("a message came in before its time")
