"""What the fetcher does beside its walks: it takes what was handed out meanwhile, and judges callbacks only."""

from __future__ import annotations

import threading
from collections import deque
from typing import cast

import pytest

from kafka_pubsub import Message
from kafka_pubsub.client.engine import Engine
from kafka_pubsub.client.holders import Holder
from kafka_pubsub.client.inline import LONGEST, Pace
from kafka_pubsub.client.walks import HELP, Walks
from kafka_pubsub.core.events import Release
from tests.unit.client.holding import Reported, lease_of
from tests.unit.client.walking import acked


class Stage:
    """An engine and its crew's seat. Deciding takes `deciding` seconds, a callback `calling`; each step has leases."""

    def __init__(self, deciding: float = 0.0, calling: float = 0.0, steps: int = 5, leases: int = 10) -> None:
        self.now = 0.0
        self.core = threading.RLock()
        self.coordinator = self
        self.seat = self
        self.aside: deque[Holder] | None = None
        self.released_: list[Release] = []
        self.booked = 0
        self.handed_out: list[bool] = []
        self._deciding, self._calling, self._left, self._leases = deciding, calling, steps, leases
        self.walks = Walks(cast("Engine", self), ordered=True)

    def clock(self) -> float:
        return self.now

    def callback(self, message: Message) -> None:
        self.now += self._calling
        acked(message)

    def step(self, now: float, *, hand_out: bool = True) -> None:
        self.now += self._deciding
        self.take_reports(now)
        self.handed_out.append(hand_out)
        if hand_out and self._left and self.aside is not None:
            self._left -= 1
            self.aside.extend(Holder(lease_of(2), Reported()) for _ in range(self._leases))

    def take_reports(self, now: float) -> None:
        self.booked = len(self.released_)

    def released(self, release: Release) -> None:
        self.released_.append(release)

    def look_alive(self, now: float) -> None: ...
    def take_posted(self) -> None: ...
    def stand_in_ends(self) -> None: ...
    def lend(self, lent: bool) -> None: ...
    def reserve(self, most: int) -> int:
        return most

    def inline(self, partitions: int) -> bool:
        return True

    def fetched(self, batches: object, now: float, *, inline: bool) -> list[object]:
        return []

    def put_aside(self, aside: deque[Holder] | None) -> None:
        self.aside = aside

    def walk(self, *, more: bool = False) -> bool | None:
        return self.walks.try_walk({}, 0, more=more)


def quick(pace: Pace) -> Pace:
    while pace.limit(0.0) < LONGEST:
        pace.walked(pace.limit(0.0), 0, 0.0, 0.0)
    return pace


def test_what_is_decided_in_between_says_nothing_about_the_callbacks() -> None:
    stage = Stage(deciding=HELP / 10)
    quick(stage.walks.pace)
    assert stage.walk()
    assert len(stage.released_) == 50
    assert stage.walks.pace.limit(stage.now) == LONGEST


def test_leases_of_slow_callbacks_count_against_the_pace() -> None:
    stage = Stage(calling=0.001)
    quick(stage.walks.pace)
    assert stage.walk()
    assert stage.walks.pace.limit(stage.now) < LONGEST


@pytest.mark.parametrize("more", [True, False])
def test_while_there_is_more_to_read_only_what_came_of_the_last_walk_is_taken(more: bool) -> None:
    stage = Stage()
    assert stage.walk(more=more)
    assert len(stage.released_) == (10 if more else 50)
    assert stage.booked == len(stage.released_), (
        "or their leases would count as out, and leave no room for a walk"
    )


def test_after_a_while_nothing_more_is_begun_before_the_next_read() -> None:
    stage = Stage(deciding=HELP)
    assert stage.walk()
    assert stage.handed_out == [True, False]
    assert stage.walks.walk is None


def test_whoever_was_relieved_meanwhile_is_not_the_fetcher_any_more() -> None:
    stage = Stage()

    def relieve(message: Message) -> None:
        acked(message)
        walk = stage.walks.walk
        assert walk is not None
        walk.over = True

    stage.callback = relieve  # type: ignore[method-assign]
    assert stage.walk(more=True) is False
