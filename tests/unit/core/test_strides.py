"""How far a dead owner may have come: what its last commit says, and when it has to say more."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_pubsub.core import ack_map
from kafka_pubsub.core.ack_map import AckMap
from kafka_pubsub.core.commits import COMMIT_INTERVAL
from kafka_pubsub.core.effects import Commit, CommitBoth, Effect
from kafka_pubsub.core.events import CommitAnswered, Fetched, RetryCaughtUp, Tick
from kafka_pubsub.core.notes import Notes
from kafka_pubsub.core.partition import Partition
from kafka_pubsub.core.rules import RetryStart, Rules, Start
from kafka_pubsub.core.stride import AHEAD, LEAST, Stride
from tests.support import FakeBody


@given(
    reach=st.integers(0, 2**21),
    clean=st.booleans(),
    runs=st.sampled_from([(), ((12, 15),), tuple((at, at + 1) for at in range(11, 3000, 2))]),
)
def test_a_map_says_how_far_its_writer_may_have_come(
    reach: int, clean: bool, runs: tuple[tuple[int, int], ...]
) -> None:
    found = ack_map.decode(ack_map.encode(AckMap(9, runs, clean, 3, Notes(((10, 11),)), reach), 10), 10)
    assert found is not None
    assert found.clean is clean
    assert found.runs == runs
    assert (found.reach == 0) is (reach == 0), "0 says that nothing was told"
    assert min(reach, 10**6) <= found.reach < reach + 64


def test_a_steady_owner_is_found_where_it_can_have_come() -> None:
    stride, position, now = Stride(0, COMMIT_INTERVAL), 0, 0.0
    for _ in range(5):
        now, position = now + COMMIT_INTERVAL, position + 4000
        stride.look(position, now)
    assert stride.told == position + AHEAD * 4000


def test_an_idle_owner_may_find_a_backlog() -> None:
    stride = Stride(70, COMMIT_INTERVAL)
    stride.look(70, 1.0)
    stride.look(70, 100.0)
    assert stride.told == 70 + LEAST


def test_who_gets_faster_says_so_before_the_stretch_is_over() -> None:
    stride = Stride(0, COMMIT_INTERVAL)
    stride.look(0, 1.0)
    stride.look(4000, 1.0 + COMMIT_INTERVAL / 10)
    assert stride.told >= 4000 + AHEAD * 4000


def test_the_way_of_the_owner_before_is_told_on_until_it_is_passed() -> None:
    stride = Stride(0, COMMIT_INTERVAL, 5000)
    stride.look(0, 1.0)
    assert stride.told == 5000
    stride.look(4900, 2.0)
    assert stride.told > 5000


class Owner:
    """A partition that is read on."""

    def __init__(self, retry: RetryStart) -> None:
        commit = CommitBoth(0, "", Commit(0, ""))
        start = Start(0, 1, 1, commit, 0, retry=retry)
        self.partition = Partition(start, Rules(ordered=True), lambda: 0.5)
        self.now = 0.0
        self.partition.handle(RetryCaughtUp(0), self.now)
        self.first = self.commits()
        self.partition.handle(CommitAnswered(True), self.now)

    def commits(self) -> list[CommitBoth]:
        effects: list[Effect] = list(self.partition.handle(Tick(), self.now))
        self.partition.check()
        return [effect for effect in effects if isinstance(effect, CommitBoth)]

    def read(self, start: int, end: int) -> list[CommitBoth]:
        self.partition.handle(Fetched([FakeBody(1, at, b"%d" % at) for at in range(start, end)]), self.now)
        return self.commits()


def told(commit: CommitBoth) -> int:
    """Up to where everything may have been started, nothing being finished."""
    found = ack_map.decode(commit.metadata, commit.offset)
    assert found is not None
    return commit.offset + found.reach


def test_who_reads_on_beyond_what_it_told_says_so_at_once() -> None:
    owner = Owner(RetryStart("t", "id", 0))
    assert LEAST <= told(owner.first[0]) < LEAST + 64
    assert owner.read(0, LEAST) == [], "it was told"
    (commit,) = owner.read(LEAST, LEAST + 1)
    assert told(commit) > 2 * LEAST
    owner.partition.handle(CommitAnswered(True), owner.now)
    assert owner.read(LEAST + 1, LEAST + 2) == []


@pytest.mark.parametrize("clean", [False, True])
def test_who_dies_on_the_way_leaves_the_way_of_the_owner_before(clean: bool) -> None:
    owner = Owner(RetryStart("t", "id", 0, clean=clean, main_end=4000))
    assert (told(owner.first[0]) >= 4000) is not clean
