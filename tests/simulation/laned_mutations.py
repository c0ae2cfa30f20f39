"""Rules of streams that read lanes, taken out one by one: what the simulation must notice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from kafka_pubsub.client.subscribe import lane_followers
from kafka_pubsub.client.subscribe.lane_choices import _Side
from kafka_pubsub.client.subscribe.lane_cuts import LaneCuts
from kafka_pubsub.client.subscribe.lane_followers import LaneFollowers
from kafka_pubsub.core.lanes.merge import LaneMerge
from kafka_pubsub.core.lanes.priority import Missing, Pick, Priority
from kafka_pubsub.core.partition import Partition
from tests.simulation.laned import InstantEnds

__all__ = ["LANED_MUTATIONS"]

Patch = pytest.MonkeyPatch


def followers_not_held(patch: Patch) -> None:
    """A key's message goes on in another lane at once."""
    patch.setattr(LaneFollowers, "notes", lambda *arguments: {})


def followed_in_retry(patch: Patch) -> None:
    """What waits in the retry topic counts as finished."""

    def finished(partition: Partition, key: bytes, offset: int) -> bool:
        return offset < partition.offsets.position and offset not in partition.offsets.unfinished

    patch.setattr(lane_followers, "_is_finished", finished)


def lost_behind_a_transaction(patch: Patch) -> None:
    """A message behind an open transaction counts as lost with its leader."""
    real = InstantEnds.ask
    patch.setattr(InstantEnds, "ask", lambda self, places, answer, whole=False: real(self, places, answer))


def blocked_lane_read_on(patch: Patch) -> None:
    """A lane that holds only followers holds up the others, though the buffer is full."""

    def look(side: _Side) -> None:
        side.merge.reach(side.lane, side.partition.offsets.position)
        side.merge.resume(side.lane)
        side.merge.offer(side.lane, side.partition.queues.oldest())

    patch.setattr(_Side, "look", look)


def put_back_unseen(patch: Patch) -> None:
    """What was taken and hasn't begun is forgotten."""
    patch.setattr(LaneMerge, "put_back", lambda *arguments: None)


def classes_by_turns(patch: Patch) -> None:
    """Of one priority the durable class goes first, whenever its messages came in."""

    def pick(self: Priority[Any], missing: Missing) -> Pick[Any] | None:
        for lane in self.lanes:
            if lane.head is not None:
                return Pick(lane, lane.head + 1, 2**62)
        return None

    patch.setattr(Priority, "pick", pick)


def all_passes(patch: Patch) -> None:
    """What was read passes through, whatever waits."""
    patch.setattr(LaneMerge, "passes", lambda *arguments: True)


def cut_unsought(patch: Patch) -> None:
    """What a narrow lane has no room for is dropped, and never read again."""
    patch.setattr(LaneCuts, "_pause_at", lambda *arguments: None)


LANED_MUTATIONS: Sequence[Callable[[Patch], None]] = (
    followers_not_held,
    followed_in_retry,
    lost_behind_a_transaction,
    blocked_lane_read_on,
    put_back_unseen,
    classes_by_turns,
    all_passes,
    cut_unsought,
)
