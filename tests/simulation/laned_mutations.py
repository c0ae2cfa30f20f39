"""Rules of streams that read lanes, each taken out: the simulation must notice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from kafka_pubsub.lane_names import Lane
from kafka_pubsub.lanes import following as lane_followers
from kafka_pubsub.lanes.cuts import LaneCuts
from kafka_pubsub.lanes.following import LaneFollowers
from kafka_pubsub.lanes.headers import Name
from kafka_pubsub.lanes.merge import LaneMerge
from kafka_pubsub.lanes.priority import Missing, Pick, Priority
from kafka_pubsub.log.records import Record
from kafka_pubsub.partition_id import PartitionId
from kafka_pubsub.subscribe.partition.followers import Followers
from kafka_pubsub.subscribe.partition.key_queues import KeyQueues
from kafka_pubsub.subscribe.partition.lease_outcomes import RecordOutcomes
from kafka_pubsub.subscribe.partition.partition import Partition
from tests.simulation.laned import InstantEnds, LanedWorld

__all__ = ["LANED_MUTATIONS"]

Patch = pytest.MonkeyPatch


def followers_not_held(patch: Patch) -> None:
    """A key's message goes on in another lane at once."""
    patch.setattr(LaneFollowers, "waiting", lambda *arguments: ())


def named_once(patch: Patch) -> None:
    """Only the first message after a change of lanes names the others."""
    real = LanedWorld.names_of

    def names_of(self: LanedWorld, key: bytes | None, number: int) -> dict[Lane, Name]:
        names = real(self, key, number)
        last = max(
            self.of_keys.get(key or b"", {}).items(), key=lambda each: each[1].number, default=(number, None)
        )
        return {} if last[0] == number else names

    patch.setattr(LanedWorld, "names_of", names_of)


def last_only(patch: Patch) -> None:
    """Only the lane of the key's last message is named."""
    real = LanedWorld.names_of

    def names_of(self: LanedWorld, key: bytes | None, number: int) -> dict[Lane, Name]:
        names = real(self, key, number)
        return dict(sorted(names.items(), key=lambda each: each[1].number)[-1:])

    patch.setattr(LanedWorld, "names_of", names_of)


def no_answer(patch: Patch) -> None:
    """The publisher changes lanes without waiting for answers: the key's last message isn't named yet."""
    real = LanedWorld.append

    def append(self: LanedWorld, key: bytes | None, transaction: str | None = None) -> tuple[int, int]:
        before = {each: dict(names) for each, names in self.of_keys.items()}
        place = real(self, key, transaction)
        now, self.of_keys = self.of_keys, vars(self).get("answered", before)
        patch.setitem(vars(self), "answered", now)
        return place

    patch.setattr(LanedWorld, "append", append)


def new_is_empty(patch: Patch) -> None:
    """A lane that isn't read yet holds nothing."""
    real = LaneFollowers._number

    def number(self: LaneFollowers, number: PartitionId, lane: Lane) -> PartitionId | None:
        found = real(self, number, lane)
        return found if found in self._owned else None

    patch.setattr(LaneFollowers, "_number", number)
    patch.setattr(lane_followers, "LOOKS", 0)


def none_waits(patch: Patch) -> None:
    """A lane that doesn't exist is waited for."""
    patch.setattr(lane_followers, "LOOKS", 10**9)


def not_lifted(patch: Patch) -> None:
    """An earlier message of a key keeps its priority though a message of a higher priority waits for it."""
    patch.setattr(LaneFollowers, "lift", lambda self: set())


def followed_in_retry(patch: Patch) -> None:
    """Messages in the retry topic count as finished."""

    def unfinished(self: LaneFollowers, partition: Partition, key: bytes, *rest: object) -> bool:
        return key in partition._queues.queues

    patch.setattr(LaneFollowers, "_is_unfinished", unfinished)


def unread_is_lost(patch: Patch) -> None:
    """Messages that aren't held are taken for finished or lost."""
    patch.setattr(LaneFollowers, "_is_read", lambda *arguments: True)


def old_end(patch: Patch) -> None:
    """An end counts that was asked for before the message was read that waits."""
    real = LaneFollowers._is_read

    def is_read(self: LaneFollowers, partition: Partition, lane: Lane, name: Name, since: float) -> bool:
        return real(self, partition, lane, name, -1e9)

    patch.setattr(LaneFollowers, "_is_read", is_read)


def no_end(patch: Patch) -> None:
    """Ends aren't asked for: lost messages are waited for."""
    patch.setattr(LaneFollowers, "_take_ends", lambda *arguments: None)


def any_log(patch: Patch) -> None:
    """An offset counts though the log is another log."""
    patch.setattr(LaneFollowers, "_has", lambda *arguments: True)


def rings_stand(patch: Patch) -> None:
    """Messages of a key that wait for each other do so for ever."""
    patch.setattr(LaneFollowers, "_leaves_ring", lambda *arguments: False)


def not_again(patch: Patch) -> None:
    """Waiting messages aren't looked at anew when a message of their key is finished."""
    patch.setattr(LaneFollowers, "changed", lambda *arguments: None)


def lease_goes_on(patch: Patch) -> None:
    """A lease goes on past a message that waits for another lane."""
    patch.setattr(Followers, "next_in", lambda *arguments: None)
    patch.setattr(Followers, "goes_along", lambda *arguments: True)
    real = KeyQueues._take

    def take(self: KeyQueues, limit: int, below: int | None) -> list[Record]:
        self.stops = ()
        return real(self, limit, below)

    patch.setattr(KeyQueues, "_take", take)


def next_not_held(patch: Patch) -> None:
    """The message behind a lease isn't held."""
    patch.setattr(RecordOutcomes, "hold_next", lambda *arguments: None)


def lost_behind_a_transaction(patch: Patch) -> None:
    """A message behind an open transaction counts as lost with its leader."""
    real = InstantEnds.ask
    patch.setattr(InstantEnds, "ask", lambda self, places, answer, whole=False: real(self, places, answer))


def put_back_unseen(patch: Patch) -> None:
    """Messages that were taken and haven't begun are forgotten."""
    patch.setattr(LaneMerge, "put_back", lambda *arguments: None)


def classes_by_turns(patch: Patch) -> None:
    """Of a priority the durable class goes first, whenever its messages came in."""

    def pick(self: Priority[Any], missing: Missing) -> Pick[Any] | None:
        for lane in self.lanes:
            if lane.head is not None:
                return Pick(lane, lane.head + 1, 2**62)
        return None

    patch.setattr(Priority, "pick", pick)


def all_passes(patch: Patch) -> None:
    """Messages of a read pass through, whichever others wait."""
    patch.setattr(LaneMerge, "passes", lambda *arguments: True)


def cut_unsought(patch: Patch) -> None:
    """Messages for which a narrow lane has no room are dropped, and never read again."""
    patch.setattr(LaneCuts, "_pause_at", lambda *arguments: None)


LANED_MUTATIONS: Sequence[Callable[[Patch], None]] = (
    followers_not_held,
    named_once,
    last_only,
    no_answer,
    new_is_empty,
    none_waits,
    not_lifted,
    followed_in_retry,
    unread_is_lost,
    old_end,
    no_end,
    any_log,
    rings_stand,
    not_again,
    lease_goes_on,
    next_not_held,
    lost_behind_a_transaction,
    put_back_unseen,
    classes_by_turns,
    all_passes,
    cut_unsought,
)
