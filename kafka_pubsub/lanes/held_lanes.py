"""The lanes of a partition and what is held of each: what comes in, goes back, and is known of their heads.

`merge` chooses among them, and says which calls a caller has to make.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from kafka_pubsub.errors import InvariantViolated
from kafka_pubsub.lane_names import Lane
from kafka_pubsub.lanes.ageing import NEVER, Ageing
from kafka_pubsub.lanes.headers import Sent
from kafka_pubsub.lanes.priority import Priority
from kafka_pubsub.lanes.read_ahead import Lift, ReadAhead

__all__ = ["HeldLanes"]

T = TypeVar("T")


class HeldLanes(Generic[T]):
    """The lanes of one partition, by priority.

    `sent` tells what a message says of its publisher, or None; it is called where both lanes of a priority have a head.
    `bound`: seconds after which a head that is passed over is aged; None: never.
    """

    def __init__(self, sent: Callable[[T], Sent | None], bound: float | None) -> None:
        self.ageing = Ageing(bound)
        self._sent = sent
        self._lanes: dict[Lane, ReadAhead[T]] = {}
        # By number, the highest first.
        self._priorities: dict[int, Priority[T]] = {}
        #: How many requests for ends were made.
        self.requests = 0
        # Up to when time can't change the choice that was found last.
        self._until = -NEVER

    # -- lanes --------------------------------------------------------------------------------------------------

    def add(self, lane: Lane, position: int, log: str = "") -> None:
        """Adds a lane, which is read from this position on; `log`: the id of its log."""
        if lane in self._lanes:
            raise InvariantViolated(f"{lane} was added twice")
        added: ReadAhead[T] = ReadAhead(lane, position, self.requests, log)
        self._lanes[lane] = added
        found = self._priorities.setdefault(lane.priority, Priority(lane.priority, self._sent))
        self._priorities = dict(sorted(self._priorities.items(), reverse=True))
        found.put(lane, added)
        self._change(lane)

    def forget(self, lane: Lane) -> None:
        """Forgets a lane and what it holds; unknown ones are no error."""
        if self._lanes.pop(lane, None) is None:
            return
        self._change(lane)
        priority = self._priorities[lane.priority]
        priority.put(lane, None)
        if not priority.lanes:
            del self._priorities[lane.priority]
            self.ageing.forget(lane.priority)

    @property
    def lanes(self) -> list[Lane]:
        """The lanes: the highest priority first, the durable one before the transient one."""
        return [each.lane for priority in self._priorities.values() for each in priority.lanes]

    def held(self, lane: Lane) -> int:
        """Returns how many messages of the lane were read and haven't begun."""
        return len(self._lanes[lane].offsets)

    def position(self, lane: Lane) -> int:
        """Returns the offset below which the lane was read."""
        return self._lanes[lane].position

    # -- what comes in ------------------------------------------------------------------------------------------

    def receive(self, lane: Lane, entries: Sequence[tuple[int, int, T]]) -> None:
        """Takes messages that were read, in the order of the log: offset, the broker's time in milliseconds, message.

        What was read before is left out.
        """
        self._lanes[lane].receive(entries)
        self._change(lane)

    def put_back(self, lane: Lane, entries: Sequence[tuple[int, int, T]]) -> None:
        """Takes back messages that were taken and haven't begun."""
        self._lanes[lane].put_back(entries)
        self._change(lane)

    def drop(self, lane: Lane, offsets: Sequence[int]) -> None:
        """Forgets messages that are held: they go another way, and don't begin from here."""
        self._lanes[lane].take_these(offsets)
        self._change(lane)

    def reach(self, lane: Lane, position: int) -> None:
        """The lane was read up to this offset, markers included."""
        self._lanes[lane].reach(position)
        self._change(lane)

    def offer(self, lane: Lane, offset: int | None, lift: Lift | None = None) -> None:
        """Says which message of the lane can be delivered first, and for which of them a higher priority waits.

        An offset, None for none of those held, as at the beginning, or `DUE` for one before all held.
        """
        self._lanes[lane].offer(offset, lift)
        self._change(lane)

    def pause(self, lane: Lane) -> None:
        """Says that nothing of the lane can be delivered, whatever it holds; it holds up no other then."""
        self._lanes[lane].pause(paused=True)
        self._change(lane)

    def resume(self, lane: Lane) -> None:
        """Ends a pause."""
        self._lanes[lane].pause(paused=False)
        self._change(lane)

    def _change(self, lane: Lane) -> None:
        """The next choice is found anew."""
        self._until = -NEVER
        if lane.priority in self.ageing.passed and self._priorities[lane.priority].drained:
            self.ageing.forget(lane.priority)
