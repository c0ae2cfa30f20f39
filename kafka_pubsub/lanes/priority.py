"""The lanes of one priority: the durable one and the transient one, and which of them goes first.

Rules
1. A head that names a message of the other lane goes behind the other head, if that stands at or before the named one.
   If the name is of another log, as in a copy, the numbers of their publisher say what stands before it, as far as
   the other lane was read.
2. If each head must go behind the other, offsets were given twice, as a leader lost its tail: the durable one goes.
3. Else the head goes that came in earlier, by the brokers' time; of equal times the durable one.
4. Beside a head, a lane without one must have been read to an end that was asked for after that head was read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from kafka_pubsub.errors import InvariantViolated
from kafka_pubsub.lane_names import Lane
from kafka_pubsub.lanes.headers import Sent
from kafka_pubsub.lanes.read_ahead import Lift, ReadAhead

__all__ = ["Choice", "Missing", "Pick", "Priority", "Sent"]

T = TypeVar("T")

#: No request is newer.
_NEWEST = 2**63 - 1
#: Messages that are looked at: of a lane to find out how many go together, and of a copy to find those of a publisher.
_FAR = 64


class Missing:
    """What must be known before a message can be chosen: ends of lanes, or more of these lanes' messages."""

    def __init__(self) -> None:
        self.ends = False
        self.lanes: list[Lane] = []

    def clear(self) -> None:
        """Nothing is missing, because nothing waits."""
        self.ends, self.lanes = False, []

    def beyond(self, lane: ReadAhead[T]) -> None:
        """More must be known of this lane: more messages if there are any, else its end."""
        if lane.unread:
            self.lanes.append(lane.lane)
        else:
            self.ends = True


class Choice(NamedTuple):
    """The lane that goes next: up to `most` of its messages at offsets below `below`, from its head on.

    `aged`: out of turn, because its head has waited too long. `key`: only this key's next message, which is lifted.
    """

    lane: Lane
    most: int
    below: int
    aged: bool = False
    key: bytes | None = None


class Pick(NamedTuple, Generic[T]):
    """The lane that goes first, with its messages below this offset, or with the one that is lifted.

    `request`: the oldest request for ends on which this choice depends.
    """

    lane: ReadAhead[T]
    below: int
    request: int
    lift: Lift | None = None

    @property
    def priority(self) -> int:
        """The priority with which it goes."""
        return self.lane.lane.priority if self.lift is None else self.lift.priority

    @property
    def requests(self) -> int:
        """The last request that doesn't cover its first message."""
        return self.lane.head_requests if self.lift is None else self.lane.requests_at(self.lift.offset)


class Priority(Generic[T]):
    """The lanes of one priority."""

    def __init__(self, number: int, sent: Callable[[T], Sent | None]) -> None:
        self.number = number
        self.durable: ReadAhead[T] | None = None
        self.transient: ReadAhead[T] | None = None
        self.lanes: tuple[ReadAhead[T], ...] = ()
        self._sent = sent

    def put(self, name: Lane, lane: ReadAhead[T] | None) -> None:
        """Adds a lane, or takes it away."""
        if name.durable:
            self.durable = lane
        else:
            self.transient = lane
        self.lanes = tuple(each for each in (self.durable, self.transient) if each is not None)

    @property
    def has_head(self) -> bool:
        """Whether one of its messages can be delivered now."""
        durable, transient = self.durable, self.transient
        return (durable is not None and durable.head is not None) or (
            transient is not None and transient.head is not None
        )

    @property
    def drained(self) -> bool:
        """Whether it holds nothing, and isn't known to have more."""
        return not any(lane.offsets or lane.head is not None or lane.unread for lane in self.lanes)

    def empty_since(self, missing: Missing) -> int | None:
        """Returns the oldest request by which its lanes without a head have no more; None: one may have some."""
        oldest = _NEWEST
        known = True
        for lane in self.lanes:
            if lane.paused or lane.head is not None:
                continue
            if not lane.reached:
                missing.beyond(lane)
                known = False
            elif lane.request < oldest:
                oldest = lane.request
        return oldest if known else None

    def pick(self, missing: Missing) -> Pick[T] | None:
        """Returns the lane that goes first; None: none has a head, or that isn't known yet."""
        durable, transient = self.durable, self.transient
        if durable is None or durable.head is None:
            return None if transient is None else self._pick_alone(transient, missing)
        if transient is None or transient.head is None:
            return self._pick_alone(durable, missing)
        if durable.time < 0 or transient.time < 0:  # what is delivered again goes first
            lane = durable if durable.time <= transient.time else transient
            return Pick(lane, (lane.head or 0) + 1, _NEWEST)
        a, b = durable.index, transient.index
        for lane, at, other in ((durable, a, transient), (transient, b, durable)):
            if self._is_unread(lane, at, other):
                missing.beyond(other)
                return None
        if self._goes_first(durable, a, transient, b):
            return Pick(durable, self._below(durable, a, transient, b), _NEWEST)
        return Pick(transient, self._below(transient, b, durable, a), _NEWEST)

    def _pick_alone(self, lane: ReadAhead[T], missing: Missing) -> Pick[T] | None:
        if lane.head is None:
            return None
        request = self.empty_since(missing)
        if request is None:
            return None
        if request <= lane.head_requests:
            missing.ends = True
            return None
        return Pick(lane, lane.head + 1 if lane.time < 0 else lane.position, request)

    def _below(self, lane: ReadAhead[T], at: int, other: ReadAhead[T], head: int) -> int:
        """Returns the offset below which a lane's messages from its head on go before the other head."""
        end = min(at + _FAR, len(lane.offsets))
        for each in range(at + 1, end):
            if self._is_unread(lane, each, other) or not self._goes_first(lane, each, other, head):
                return lane.offsets[each]
        return lane.offsets[end - 1] + 1

    def _goes_first(self, lane: ReadAhead[T], at: int, other: ReadAhead[T], head: int) -> bool:
        """Whether a message of one lane goes before one of the other (rules 1 to 3); both by their index there."""
        behind, before = self._is_behind(lane, at, other, head), self._is_behind(other, head, lane, at)
        if behind != before:
            return before
        times = lane.times[at], other.times[head]
        return lane is self.durable if behind or times[0] == times[1] else times[0] < times[1]

    def _is_behind(self, lane: ReadAhead[T], at: int, other: ReadAhead[T], head: int) -> bool:
        """Whether a message names one of the other lane that stands at, or behind, the message there."""
        sent = self._sent(lane.messages[at])
        if sent is None or sent.other is None:
            return False
        if sent.other.log == other.log:
            return other.offsets[head] <= sent.other.offset
        return any(number <= sent.other.number for number in self._numbers(other, head, sent.publisher))

    def _is_unread(self, lane: ReadAhead[T], at: int, other: ReadAhead[T]) -> bool:
        """Whether the other lane, a copy, must be read on to know which of its messages one goes behind."""
        sent = self._sent(lane.messages[at])
        if sent is None or sent.other is None or sent.other.log == other.log or other.reached:
            return False
        known = any(number >= sent.other.number for number in self._numbers(other, 0, sent.publisher))
        return not known and len(other.offsets) < _FAR

    def _numbers(self, lane: ReadAhead[T], at: int, publisher: str) -> list[int]:
        """Returns the numbers of a publisher's messages that a lane holds from an index on."""
        found = map(self._sent, lane.messages[at : at + _FAR])
        return [each.number for each in found if each is not None and each.publisher == publisher]

    def check(self) -> None:
        """Raises `InvariantViolated` if it contradicts itself."""
        for lane in self.lanes:
            lane.check()
            if lane.lane.priority != self.number:
                raise InvariantViolated(f"{lane.lane} is among the lanes of priority {self.number}")
