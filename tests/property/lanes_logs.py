"""The parts of a world of lanes: messages, and the reader's part of each lane."""

from __future__ import annotations

from typing import NamedTuple

from kafka_pubsub.lane_names import Lane

__all__ = ["Message", "Side"]


class Message(NamedTuple):
    """A message of a log; `came` counts all messages of all lanes, `number` is an id that says nothing."""

    lane: Lane
    offset: int
    time: int
    publisher: int
    sequence: int
    came: int
    number: int
    key: int | None
    #: The publisher's last message of the other class: its sequence and its offset.
    other: tuple[int, int] | None = None

    def came_before(self, other: Message) -> bool:
        """In the order in which they came in, as far as there is one."""
        if self.time != other.time:
            return self.time < other.time
        return self.publisher == other.publisher and self.sequence < other.sequence


class Side:
    """The reader's part of a lane."""

    def __init__(self, asked: int) -> None:
        #: None is a marker.
        self.log: list[Message | None] = []
        self.held: list[Message] = []
        self.position = 0
        self.end: int | None = None
        self.request = 0
        self.asked = asked
        self.paused = self.gone = False
        #: Whether the last answer said nothing about the lane.
        self.left_out = False
        #: By request: the offset below which messages had come in, as far as the reader knew.
        self.sure: dict[int, int] = {asked: 0}

    def uncovered(self, offset: int) -> int:
        """Returns the last request that says nothing about messages before the offset."""
        return max(request for request, sure in self.sure.items() if sure <= offset)

    def reached(self) -> bool:
        return self.end is not None and self.position >= self.end
