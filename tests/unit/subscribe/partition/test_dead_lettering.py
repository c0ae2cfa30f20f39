"""A dead-letter topic that is away, or takes some records only: which messages wait, and which don't."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kafka_pubsub.model import Ending
from kafka_pubsub.subscribe.formats.record import Why
from kafka_pubsub.subscribe.partition.effects import (
    CommitBoth,
    Effect,
    ReadBodies,
    StoreMoves,
    WriteDeadLetters,
)
from kafka_pubsub.subscribe.partition.events import (
    Bodies,
    CommitAnswered,
    MovesAnswered,
    Returned,
    Revoked,
    Written,
)
from kafka_pubsub.subscribe.partition.moves import DEAD_LETTERS
from kafka_pubsub.subscribe.partition.settings import Policy
from tests.unit.subscribe.partition.test_retry_partition import Scene, infos, parked

LONGEST_PAUSE = DEAD_LETTERS.longest_pause
UNREADABLE_AT_ONCE = Policy(5)


def used_up(count: int = 1) -> Scene:
    """A partition with messages of keys of their own whose attempts are used up."""
    scene = Scene(
        [parked(at, at, b"%d" % at, attempt=6, why=Why.UNBURIED) for at in range(count)], UNREADABLE_AT_ONCE
    )
    scene.fetch((100, b"good"))
    return scene


def step(scene: Scene, seconds: float = 0.1) -> list[WriteDeadLetters]:
    """The log takes everything but dead letters at once; returns the dead letters that are begun."""
    begun = []
    for effect in scene.tick(seconds):
        if isinstance(effect, WriteDeadLetters):
            begun.append(effect)
        elif isinstance(effect, StoreMoves):
            scene.take(effect)
        elif isinstance(effect, CommitBoth):
            scene.do(CommitAnswered(True))
        elif isinstance(effect, ReadBodies):
            scene.do(Bodies([scene.retry[offset] for offset in effect.offsets]))
    return begun


def next_dead_letters(scene: Scene, most: float) -> tuple[WriteDeadLetters, float]:
    """The next dead letter, and after how many seconds it was begun."""
    before = scene.now
    while scene.now < before + most:
        if found := step(scene):
            return found[0], scene.now - before
    raise AssertionError(f"nothing was buried within {most} s")


def origins(effect: WriteDeadLetters | StoreMoves) -> list[int]:
    return [record.record.offset() for record in effect.records]


def fail(scene: Scene, store_dead_letter: WriteDeadLetters, culprit: int | None) -> bool:
    """The log takes dead letters without the culprit, and says nothing of why the others are refused."""
    if culprit is None or culprit in origins(store_dead_letter):
        scene.do(Written(False, reason="no answer"))
        return True
    scene.store_dead_letter()
    return False


def test_redelivery_and_commits_go_on_while_dead_letters_are_written() -> None:
    scene = used_up()
    store_dead_letter, _ = next_dead_letters(scene, 1.0)
    assert origins(store_dead_letter) == [0]
    nacked = scene.now
    scene.nack(scene.begun()[0])
    while not (leases := scene.begun()):
        assert step(scene) == [], "a second transaction of dead letters beside the first"
        assert scene.now < nacked + 3.0
    assert scene.now <= nacked + 1.5 + 0.5, "later than its backoff, and what a transaction gives others"
    scene.ack(leases[0])
    step(scene)
    assert isinstance(scene.partition._commits.stored, CommitBoth)
    assert scene.partition._commits.stored.offset == 101
    assert scene.partition._retry_partition.retries.finished_runs.lowest(9) == [0]


def test_a_dead_letter_waits_for_the_commit_in_flight_and_is_the_only_one_itself() -> None:
    scene = used_up()
    next_dead_letters(scene, 1.0)
    scene.ack(scene.begun()[0])
    (commit,) = [effect for effect in scene.tick() if isinstance(effect, CommitBoth)]
    scene.do(Written(True))
    assert [effect for effect in scene.tick() if isinstance(effect, StoreMoves)] == []
    scene.do(CommitAnswered(True))
    (relocate,) = [effect for effect in scene.tick() if isinstance(effect, StoreMoves)]
    assert relocate.records[0].dead
    assert relocate.commit.offset == commit.offset
    scene.fetch((101, b"good"))
    scene.ack(scene.begun()[0])
    assert [effect for effect in scene.tick() if isinstance(effect, CommitBoth)] == []
    scene.take(relocate)
    assert scene.tick() != []


def test_nothing_is_finished_before_the_log_has_taken_the_dead_letter() -> None:
    scene = used_up()
    store_dead_letter, _ = next_dead_letters(scene, 1.0)
    scene.do(Written(False, reason="no answer"))
    store_dead_letter, _ = next_dead_letters(scene, 3.0)
    assert scene.partition._retry_partition.retries.finished_runs.committable == 0
    scene.do(Written(True))
    (relocate,) = [effect for effect in scene.tick() if isinstance(effect, StoreMoves)]
    assert origins(relocate) == origins(store_dead_letter)
    scene.do(MovesAnswered(Ending.ABORTED))
    assert scene.partition._retry_partition.retries.finished_runs.committable == 0


def test_tries_become_rare_while_the_topic_is_away_and_one_success_ends_that() -> None:
    scene = used_up(2)
    pauses = []
    for _ in range(16):
        store_dead_letter, pause = next_dead_letters(scene, LONGEST_PAUSE + 1)
        pauses.append(pause)
        scene.do(Written(False, reason="no answer"))
    assert pauses[1] <= 1.3
    assert LONGEST_PAUSE - 1 <= max(pauses) <= LONGEST_PAUSE + 0.3
    store_dead_letter, _ = next_dead_letters(scene, LONGEST_PAUSE + 1)
    scene.store_dead_letter()
    assert len(origins(store_dead_letter)) == 1
    rest, _ = next_dead_letters(scene, LONGEST_PAUSE + 1)
    assert {*origins(store_dead_letter), *origins(rest)} == {0, 1}


def test_one_record_that_makes_its_dead_letter_fail_holds_up_the_others_for_seconds_only() -> None:
    scene = used_up(100)
    buried: set[int] = set()
    began = scene.now
    while len(buried) < 99:
        store_dead_letter, _ = next_dead_letters(scene, 20.0)
        if not fail(scene, store_dead_letter, culprit=37):
            buried.update(origins(store_dead_letter))
    assert scene.now - began < 60
    assert 37 not in buried
    store_dead_letter, _ = next_dead_letters(scene, LONGEST_PAUSE + 1)
    assert origins(store_dead_letter) == [37]
    scene.store_dead_letter()


def test_a_record_that_is_refused_by_itself_pauses_alone() -> None:
    scene = used_up(3)
    store_dead_letter, _ = next_dead_letters(scene, 1.0)
    scene.do(Written(False, {1: "too large"}))
    store_dead_letter, pause = next_dead_letters(scene, 1.0)
    assert origins(store_dead_letter) == [0, 2]
    assert pause < 0.5
    scene.store_dead_letter()
    store_dead_letter, _ = next_dead_letters(scene, 3.0)
    assert origins(store_dead_letter) == [1]


@pytest.mark.parametrize("taken", [True, False])
def test_a_dead_letter_that_is_answered_while_the_partition_is_away_goes_on_when_it_returns(
    taken: bool,
) -> None:
    scene = used_up()
    next_dead_letters(scene, 1.0)
    effects: Sequence[Effect] = scene.do(Revoked())
    assert not any(isinstance(effect, StoreMoves) for effect in effects)
    scene.do(Written(taken))
    if scene.partition._commits.in_flight is not None:
        scene.do(CommitAnswered(True))
    scene.do(Returned())
    if not taken:
        step(scene)
        next_dead_letters(scene, 3.0)
        scene.store_dead_letter()
    else:
        scene.settle()
    assert scene.partition._retry_partition.retries.finished_runs.committable == len(scene.retry)


def test_a_move_that_fails_without_a_name_goes_by_halves() -> None:
    scene = Scene()
    scene.fetch(*((at, b"%d" % at) for at in range(40)))
    for lease in scene.begun(40):
        scene.nack(lease)
    moved: set[int] = set()
    began = scene.now
    while len(moved) < 39:
        for effect in scene.tick(0.1):
            if isinstance(effect, CommitBoth):
                scene.do(CommitAnswered(True))
            elif isinstance(effect, StoreMoves):
                some = {info.origin for info in infos([effect])}
                if 17 in some:
                    scene.do(MovesAnswered(Ending.ABORTED))
                else:
                    scene.take(effect)
                    moved |= some
        assert scene.now < began + 60, "one record holds up the others"


@pytest.mark.parametrize("key", [b"k", None])
def test_a_message_that_waits_is_delivered_although_a_new_policy_allows_fewer_attempts(
    key: bytes | None,
) -> None:
    scene = Scene([parked(0, 3, key, attempt=6)], Policy(5))
    scene.fetch((9, b"other"))
    scene.settle()
    assert scene.dead_letters() == []
    assert [lease.attempt for lease in scene.begun() if lease.records[0].offset() == 3] == [6]
