"""Messages that pass through: they go as soon as they are read, and never wait in the merge.

Theory. Where the lane that goes in turn has many messages, to hold each until a choice costs more than a quick
callback. A lane's messages may as well go at once if the merge would choose them, one after the other.

Rules
1. Messages pass if their lane holds none, no lane of the same or a higher priority has a head or may have unread
   messages that came in earlier, and nothing is aged.
2. While messages pass, ends are asked for in time: before the first message that no request covers, and now and then.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, TypeVar

from kafka_pubsub.lanes.priority import Priority
from kafka_pubsub.lanes.read_ahead import ReadAhead

__all__ = ["SPARE", "Passing", "may_pass"]

T = TypeVar("T")

#: Ends are asked for when fewer messages than this may go before an answer.
SPARE = 500
#: Seconds after which ends are asked for again while messages pass.
FRESH = 0.1


def may_pass(lane: ReadAhead[T], last: int, priorities: Mapping[int, Priority[T]]) -> bool:
    """Whether messages of a lane up to the offset `last` go first (rule 1); `priorities`: the highest first."""
    if lane.paused or lane.offsets or lane.head is not None:
        return False
    since = lane.requests_at(last)
    for number, priority in priorities.items():
        if number < lane.lane.priority:
            break
        for each in priority.lanes:
            if each.head is not None:
                return False
            is_empty = each.reached and each.request > since
            if each is not lane and not (is_empty or each.paused):
                return False
    return True


class Passing(Generic[T]):
    """What passed in one partition since ends were asked for."""

    def __init__(self) -> None:
        self._lane: ReadAhead[T] | None = None

    def went(self, lane: ReadAhead[T]) -> None:
        """Messages of a lane passed."""
        self._lane = lane

    def asked(self) -> None:
        """Ends are asked for."""
        self._lane = None

    def wants_ends(self, since: float) -> bool:
        """Whether to ask for ends; the last request was made `since` seconds ago."""
        lane = self._lane
        return lane is not None and (
            since >= FRESH or (lane.unread and lane.covered_by(lane.request) - lane.position < SPARE)
        )
