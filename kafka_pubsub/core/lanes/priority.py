"""The lanes of one priority: the durable one and the transient one, and which of them goes first.

Rules
1. The lane whose head came in earlier goes first, by the broker's time.
2. Equal times are settled only when both lanes are known beyond that time. Then the durable head goes first, unless the
   transient lane holds, at or behind its head and of that time, an earlier message of its publisher. To compare the two
   heads by publisher and counter would be wrong: an earlier message may stand behind the other head.
3. Beside a head, the other lane counts as empty only by an end that was asked for after that head was read.
4. An empty lane, or a blocked one, never waits for the other one.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Hashable
from typing import Generic, NamedTuple, TypeVar

from kafka_pubsub.core.lanes.names import Lane
from kafka_pubsub.core.lanes.read_ahead import ReadAhead
from kafka_pubsub.errors import InvariantViolated

__all__ = ["Choice", "Missing", "Pick", "Priority", "Sent"]

T = TypeVar("T")

#: A message's publisher, and its number among that publisher's messages.
Sent = tuple[Hashable, int]

#: No request is newer.
_NEWEST = 2**63 - 1
#: Messages of one time that are looked at to find out how many go together.
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

    `aged`: out of turn, because its head has waited too long.
    """

    lane: Lane
    most: int
    below: int
    aged: bool = False


class Pick(NamedTuple, Generic[T]):
    """The lane that goes first, with its messages below this offset; `request` is the oldest that this rests on."""

    lane: ReadAhead[T]
    below: int
    request: int


class Priority(Generic[T]):
    """The lanes of one priority."""

    def __init__(self, number: int, sent: Callable[[T], Sent | None]) -> None:
        self.number = number
        self.durable: ReadAhead[T] | None = None
        self.transient: ReadAhead[T] | None = None
        self.lanes: tuple[ReadAhead[T], ...] = ()
        self._sent = sent
        # The time that is settled, and per durable message of that time the transient one up to which others go first.
        self._settled: int | None = None
        self._after: dict[int, int] = {}

    def put(self, name: Lane, lane: ReadAhead[T] | None) -> None:
        """Adds a lane, or takes it away."""
        if name.durable:
            self.durable = lane
        else:
            self.transient = lane
        self.lanes = tuple(each for each in (self.durable, self.transient) if each is not None)
        self.unsettle()

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

    def unsettle(self) -> None:
        """Forgets how equal times were settled, because messages came back or lanes changed."""
        self._settled = None

    def come(self, time: int | None) -> None:
        """Takes note that times from this one on are new in one of its lanes."""
        if time is not None and self._settled is not None and time <= self._settled:
            self._settled = None

    def answered(self) -> None:
        """Takes note of new ends: a lane may have more of the time that is settled."""
        if any(lane.unread and lane.times[-1:] == [self._settled] for lane in self.lanes):
            self._settled = None

    def empty_since(self, missing: Missing) -> int | None:
        """Returns the oldest request by which its lanes without messages are empty; None: one may have some."""
        oldest = _NEWEST
        known = True
        for lane in self.lanes:
            if lane.offsets or lane.paused or lane.head is not None:
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
        if durable.time == transient.time >= 0:
            return self._pick_settled(durable, transient, durable.head, transient.head, missing)
        lane, other = (durable, transient) if durable.time <= transient.time else (transient, durable)
        return Pick(lane, _below(lane, other.time), _NEWEST)

    def _pick_alone(self, lane: ReadAhead[T], missing: Missing) -> Pick[T] | None:
        if lane.head is None:
            return None
        request = self.empty_since(missing)
        if request is None:
            return None
        if request <= lane.head_requests:
            missing.ends = True
            return None
        return Pick(lane, _below(lane, _NEWEST), request)

    def _pick_settled(
        self, durable: ReadAhead[T], transient: ReadAhead[T], head: int, other: int, missing: Missing
    ) -> Pick[T] | None:
        if self._settled != durable.time and not self._settle(durable, transient, missing):
            return None
        after = self._after
        if after[head] >= other:
            return Pick(transient, after[head] + 1, _NEWEST)
        at = bisect_left(durable.offsets, head)
        far = min(at + _FAR, bisect_right(durable.times, durable.time, at))
        below = next((each for each in durable.offsets[at:far] if after[each] >= other), None)
        return Pick(durable, durable.offsets[far - 1] + 1 if below is None else below, _NEWEST)

    def _settle(self, durable: ReadAhead[T], transient: ReadAhead[T], missing: Missing) -> bool:
        time = durable.time
        spans = [(bisect_left(each.times, time), bisect_right(each.times, time)) for each in self.lanes]
        read = max(
            each.requests_at(each.offsets[end - 1]) for each, (_, end) in zip(self.lanes, spans, strict=True)
        )
        known = True
        for lane in (durable, transient):
            if lane.times[-1] == time and not (lane.reached and lane.request > read):
                missing.beyond(lane)
                known = False
        if not known:
            return False
        (first, last), (begin, end) = spans
        lowest = self._lowest(transient, begin, end)
        self._settled, self._after = time, {}
        for at in range(first, last):
            self._after[durable.offsets[at]] = self._last_before(lowest, durable.messages[at])
        return True

    def _lowest(
        self, transient: ReadAhead[T], begin: int, end: int
    ) -> dict[Hashable, tuple[list[int], list[int]]]:
        """Returns of each publisher, from the last message to the first: offsets, and the lowest number from there."""
        found: dict[Hashable, tuple[list[int], list[int]]] = {}
        for at in range(end - 1, begin - 1, -1):
            sent = self._sent(transient.messages[at])
            if sent is not None:
                offsets, numbers = found.setdefault(sent[0], ([], []))
                offsets.append(transient.offsets[at])
                numbers.append(min(sent[1], numbers[-1]) if numbers else sent[1])
        for offsets, numbers in found.values():
            offsets.reverse()
            numbers.reverse()
        return found

    def _last_before(self, lowest: dict[Hashable, tuple[list[int], list[int]]], message: T) -> int:
        """Returns the offset of the last transient message that must go before this durable one; -1: none must."""
        sent = self._sent(message)
        if sent is None or sent[0] not in lowest:
            return -1
        offsets, numbers = lowest[sent[0]]
        at = bisect_left(numbers, sent[1]) - 1
        return offsets[at] if at >= 0 else -1

    def check(self) -> None:
        """Raises `InvariantViolated` if it contradicts itself."""
        for lane in self.lanes:
            lane.check()
            if lane.lane.priority != self.number:
                raise InvariantViolated(f"{lane.lane} is among the lanes of priority {self.number}")


def _below(lane: ReadAhead[T], time: int) -> int:
    """Returns the offset below which a lane's messages from its head on came in before a time."""
    if lane.time < 0:
        return (lane.head or 0) + 1
    at = bisect_left(lane.times, time)
    return lane.offsets[at] if at < len(lane.offsets) else lane.position
