"""One lane of one partition: the messages that were read and haven't begun, and the knowledge of the rest.

Rules
1. Messages are held in the order of the log. They leave it from the front, or out of order where keys block the first.
2. Times never go back within a lane. If the broker's clock stepped back, the messages before the step count with the
   time after it, because they come before it in the log.
3. The *head* is the first message that can be delivered now, as the caller says. A lane that holds messages and has no
   head is blocked. One that holds none is empty once its end is reached.
4. A request for ends covers what had certainly come in when it was made: what was read, and of a durable lane what
   lies below an end that had been answered. A transient lane's leader may lose its tail, and give its offsets again.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from operator import itemgetter
from typing import Generic, NamedTuple, TypeVar

from kafka_pubsub.errors import InvariantViolated
from kafka_pubsub.lane_names import Lane

__all__ = ["DUE", "Lift", "ReadAhead"]

T = TypeVar("T")

#: What can be delivered first isn't held here, and goes before all that is: a message that is delivered again.
DUE = -1

_NONE_HELD = -1
_MOST = 2**63 - 1


class Lift(NamedTuple):
    """The next message of a key, for which a message of a higher priority waits: it goes with that priority."""

    priority: int
    offset: int
    key: bytes


class ReadAhead(Generic[T]):
    """The messages of a lane from a position on."""

    def __init__(self, lane: Lane, position: int, requests: int, log: str = "") -> None:
        self.lane = lane
        #: The id of its log.
        self.log = log
        #: Everything below it was read, or can never be.
        self.position = position
        #: The lane's end by the latest answer, and the number of that request. None: it isn't known.
        self.end: int | None = None
        self.request = 0
        #: Requests with this number or below were made before this lane was there.
        self.asked_before = requests
        self.paused = False
        #: The offset of the head, and its time; None: there is none. The time of one that isn't held is -1.
        self.head: int | None = None
        self.time = _NONE_HELD
        self.offsets: list[int] = []
        self.times: list[int] = []
        self.messages: list[T] = []
        self._offer: int | None = None
        #: Which of its messages may go before its turn.
        self.lift: Lift | None = None
        # From which offset on which request covers nothing.
        self._marks: list[tuple[int, int]] = [(0, requests)]

    # -- messages come in ------------------------------------------------------------------------------------------

    def receive(self, entries: Sequence[tuple[int, int, T]]) -> None:
        """Takes messages that were read: offset, time and message."""
        if entries and entries[0][0] < self.position:
            entries = [entry for entry in entries if entry[0] >= self.position]
        if not entries:
            return
        offsets, times, messages = zip(*entries, strict=True)
        before = len(self.times)
        self.offsets += offsets
        self.times += times
        self.messages += messages
        self.position = offsets[-1] + 1
        come = self.times[max(0, before - 1) :]
        if come != sorted(come):
            self._lower()
        self._look()

    def put_back(self, entries: Sequence[tuple[int, int, T]]) -> None:
        """Takes back messages that were taken and haven't begun."""
        for offset, time, message in entries:
            at = bisect_left(self.offsets, offset)
            self.offsets.insert(at, offset)
            self.times.insert(at, time)
            self.messages.insert(at, message)
        self._lower()
        self._look()

    def _lower(self) -> None:
        times = self.times
        lowest = _MOST
        for at in range(len(times) - 1, -1, -1):
            lowest = times[at] = min(lowest, times[at])

    def ask(self, request: int) -> None:
        """Notes the range that a request for ends covers that is made now (rule 4)."""
        first = self.offsets[0] if self.offsets else self.position
        while len(self._marks) > 1 and self._marks[1][0] <= first:
            del self._marks[0]
        end = self.end if self.lane.durable and self.end else 0
        offset = max(self.position, end, self._marks[-1][0])
        if self._marks[-1][0] == offset:
            del self._marks[-1]
        self._marks.append((offset, request))

    def reach(self, position: int) -> None:
        """Nothing below the position is left to be read."""
        self.position = max(self.position, position)

    def offer(self, offset: int | None, lift: Lift | None) -> None:
        """Says what can be delivered first (an offset, `DUE`, or None for none), and what is lifted."""
        self._offer, self.lift = offset, lift
        self._look()

    def pause(self, *, paused: bool) -> None:
        """Says whether nothing of this lane can be delivered, whatever it holds."""
        self.paused = paused
        self._look()

    # -- messages go out ------------------------------------------------------------------------------------------

    def take_these(self, offsets: Sequence[int]) -> None:
        """Takes the messages at these offsets; after that nothing is offered until the caller offers anew."""
        count = len(offsets)
        first = self.offsets[:count] == sorted(offsets)
        if first:
            del self.offsets[:count], self.times[:count], self.messages[:count]
        for offset in () if first else offsets:
            at = bisect_left(self.offsets, offset)
            if self.offsets[at : at + 1] != [offset]:
                raise InvariantViolated(f"{self.lane}: offset {offset} was taken, and isn't held")
            del self.offsets[at], self.times[at], self.messages[at]
        self._offer = self.lift = None
        self._look()

    def _look(self) -> None:
        """Finds the head (rule 3)."""
        self.head, self.time = None if self.paused else self._offer, _NONE_HELD
        if self.head is not None and self.offsets[(at := self.index) : at + 1] == [self.head]:
            self.time = self.times[at]

    # -- knowledge ------------------------------------------------------------------------------------------

    @property
    def reached(self) -> bool:
        """Whether everything was read, as far as its end is known."""
        return self.end is not None and self.position >= self.end

    @property
    def unread(self) -> bool:
        """Whether it is known that there is more to read."""
        return self.end is not None and self.position < self.end

    @property
    def head_requests(self) -> int:
        """The last request that doesn't cover the head; all cover one that isn't held."""
        return 0 if self.head is None or self.time == _NONE_HELD else self.requests_at(self.head)

    @property
    def index(self) -> int:
        """Where the head is among the messages that are held."""
        return bisect_left(self.offsets, self.head or 0)

    def requests_at(self, offset: int) -> int:
        """Returns the last request that doesn't cover the message at an offset; 0 if it has begun once."""
        at = bisect_right(self._marks, (offset, _MOST)) - 1
        return self._marks[at][1] if at >= 0 else 0

    def covered_by(self, request: int) -> int:
        """Returns the offset below which this request covers all."""
        at = bisect_left(self._marks, request, key=itemgetter(1))
        return self._marks[at][0] if at < len(self._marks) else _MOST

    def count_below(self, offset: int) -> int:
        """Returns how many messages it holds from its head on, below an offset."""
        head = self.offsets[0] if self.head is None else self.head
        return bisect_left(self.offsets, offset) - bisect_left(self.offsets, head)

    def check(self) -> None:
        """Raises `InvariantViolated` if it contradicts itself."""
        if not len(self.offsets) == len(self.times) == len(self.messages):
            raise InvariantViolated(f"{self.lane}: {len(self.offsets)} offsets, {len(self.times)} times")
        if self.offsets != sorted(set(self.offsets)) or self.offsets[-1:] >= [self.position]:
            raise InvariantViolated(f"{self.lane}: {self.offsets} are held, read up to {self.position}")
        if self.times != sorted(self.times):
            raise InvariantViolated(f"{self.lane}: times go back: {self.times}")
        offsets, requests = zip(*self._marks, strict=True)
        if list(offsets) != sorted(set(offsets)) or list(requests) != sorted(set(requests)):
            raise InvariantViolated(f"{self.lane}: marks are out of order: {self._marks}")
        if self.paused and self.head is not None:
            raise InvariantViolated(f"{self.lane}: it is paused and has a head")
