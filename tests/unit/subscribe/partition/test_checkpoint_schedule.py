"""When a checkpoint is written, the contents of the commits around it, and deletions."""

from __future__ import annotations

import pytest

from kafka_pubsub.model import Ending
from kafka_pubsub.subscribe.formats import ack_map
from kafka_pubsub.subscribe.formats.ack_map import AckMap
from kafka_pubsub.subscribe.formats.checkpoint import Checkpoint, Named, joined
from kafka_pubsub.subscribe.partition import checkpoint_schedule, commits, retry_partition
from kafka_pubsub.subscribe.partition.checkpoint_schedule import EVERY, PAUSE
from kafka_pubsub.subscribe.partition.effects import Commit, CommitBoth, Effect, StoreMoves, Trim
from kafka_pubsub.subscribe.partition.events import (
    CommitAnswered,
    MovesAnswered,
    RetryCaughtUp,
    RetryFetched,
    Returned,
    Revoked,
    Tick,
    Written,
)
from kafka_pubsub.subscribe.partition.outage import WINDOW
from kafka_pubsub.subscribe.partition.partition import Partition
from kafka_pubsub.subscribe.partition.settings import EVERYTHING, Found, LogStart, Policy, Rules, Start
from tests.partition_ids import P
from tests.unit.subscribe.partition.test_retry_partition import TOPIC_ID, Scene, Stored, parked


def transactions(effects: list[Effect]) -> list[StoreMoves]:
    return [effect for effect in effects if isinstance(effect, StoreMoves)]


def commits_of(effects: list[Effect]) -> list[CommitBoth]:
    return [effect for effect in effects if isinstance(effect, CommitBoth)]


def said(commit: CommitBoth) -> tuple[AckMap, AckMap]:
    main = ack_map.decode(commit.metadata, commit.offset)
    retry = ack_map.decode(commit.retry.metadata, commit.retry.offset)
    assert main is not None
    assert retry is not None
    return main, retry


def scattered(scene: Scene, count: int) -> None:
    """So many messages of main are acked, and between any two of them another waits."""
    before = scene.partition._offsets.position
    scene.fetch(*((before + at, b"%d" % (before + at)) for at in range(2 * count)))
    for lease in scene.begun(2 * count):
        if lease.records[0].offset() % 2:
            scene.ack(lease)


def written(effect: StoreMoves) -> Checkpoint:
    found = joined(effect.parts)
    assert found is not None
    return found


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    """A map with room for some twenty runs."""
    monkeypatch.setattr(ack_map, "CAPACITY", ack_map.NOTED + 60)
    return Scene()


def test_a_map_that_is_half_full_makes_the_next_commit_a_checkpoint(scene: Scene) -> None:
    scattered(scene, 5)
    effects = scene.tick()
    (plain,) = commits_of(effects)
    assert len(said(plain)[0].runs) == 5
    assert said(plain)[0].checkpoint is None
    scene.do(CommitAnswered(True))
    scattered(scene, 20)
    (effect,) = transactions(scene.tick())
    assert not effect.records, "no record moves for its sake"
    checkpoint = written(effect)
    assert len(checkpoint.main.runs) == 25
    assert (checkpoint.main.position, checkpoint.main.end) == (0, 50)
    scene.take(effect)
    stored = scene.partition._commits.stored
    assert isinstance(stored, CommitBoth)
    main, retry = said(stored)
    assert (main.checkpoint, main.runs, main.more) == (Named(0, checkpoint.nonce), (), True)
    assert (retry.checkpoint, retry.runs, retry.more) == (Named(0, checkpoint.nonce), (), False)
    scattered(scene, 2)
    (plain,) = commits_of(scene.tick())
    assert len(said(plain)[0].runs) == 2, "what the checkpoint told isn't told again"
    assert said(plain)[0].checkpoint == main.checkpoint


def test_after_an_abort_commits_count_from_the_checkpoint_before_and_go_on(scene: Scene) -> None:
    scattered(scene, 13)
    assert transactions(scene.tick())
    scene.do(MovesAnswered(Ending.ABORTED))
    (plain,) = commits_of(scene.tick(PAUSE / 2))
    assert said(plain)[0].checkpoint is None
    assert len(said(plain)[0].runs) == 13
    scene.do(CommitAnswered(True))
    scattered(scene, 1)
    assert transactions(scene.tick(PAUSE)), "it is tried again"


def test_what_does_not_fit_is_committed_with_a_checkpoint_whatever_happened_before(scene: Scene) -> None:
    scattered(scene, 30)
    for _ in range(3):
        (effect,) = transactions(scene.tick(0.2))
        assert len(written(effect).main.runs) == 30
        scene.do(MovesAnswered(Ending.ABORTED))


def test_a_partition_that_comes_back_is_announced_with_a_checkpoint_if_much_has_finished(
    scene: Scene,
) -> None:
    """A process stood still while the transaction with the checkpoint was aborted."""
    scattered(scene, 30)
    scene.fetch((60, b"later"))
    assert transactions(scene.tick(0.2))
    scene.do(MovesAnswered(Ending.ABORTED))
    scene.do(Returned())
    (effect,) = transactions(scene.tick(0.2))
    assert len(written(effect).main.runs) == 30
    assert not scene.begun(), "nothing begins before the log has taken it"
    scene.take(effect)
    assert [lease.key for lease in scene.begun()] == [b"later"]


def test_the_first_commit_of_an_ownership_is_plain_however_full_and_however_often_it_is_refused(
    scene: Scene,
) -> None:
    """By the number of its writer the next owner finds the transactions that this owner leaves open."""
    scattered(scene, 15)
    stored, runs = scene.partition._commits.stored, scene.partition._offsets.runs()
    start = Start(P[0], 2, 7, stored, Found("t", TOPIC_ID, LogStart(0, runs, end=EVERYTHING)))
    partition = Partition(start, Rules(ordered=True, subscription="s"), lambda: 0.5)
    partition.handle(RetryCaughtUp(0), 0.0)
    for now in (1.0, 2.0, 3.0):
        (commit,) = commits_of(list(partition.handle(Tick(), now)))
        assert (said(commit)[0].writer, len(said(commit)[0].runs)) == (7, 15)
        partition.handle(CommitAnswered(False), now)
        partition.handle(Returned(), now)


def test_what_has_changed_is_in_a_checkpoint_after_ten_minutes_and_nothing_is_written_twice() -> None:
    scene = Scene()
    scene.settle()
    assert not transactions(scene.tick(2 * EVERY)), "nothing has changed since the subscription was made"
    scattered(scene, 3)
    assert commits_of(scene.tick())
    scene.do(CommitAnswered(True))
    for seconds in (WINDOW, WINDOW, EVERY - 10 - 2 * WINDOW):  # a window each until acks are forgotten
        assert not scene.tick(seconds)
    assert scene.partition.wakeup_at() == pytest.approx(scene.now + 10)
    (effect,) = transactions(scene.tick(11))
    scene.take(effect)
    scene.settle()  # the position passes the checkpoint itself
    assert not transactions(scene.tick(2 * EVERY))


def test_a_checkpoint_that_is_due_waits_until_a_commit_may_go_and_asks_for_no_tick_before() -> None:
    scene = Scene()
    scene.settle()
    scattered(scene, 3)
    assert commits_of(scene.tick())
    scene.do(CommitAnswered(True))
    scene.tick(EVERY - 0.01)
    scene.partition._commits._not_before = scene.now + 0.1  # as after a commit that was made just now
    assert not transactions(scene.tick(0.05)), "it is due, and no commit may go"
    wakeup = scene.partition.wakeup_at()
    assert wakeup is not None
    assert wakeup > scene.now
    assert transactions(scene.tick(0.1))


def test_a_clean_close_leaves_a_checkpoint_a_revoke_does_not() -> None:
    for closing in (False, True):
        scene = Scene()
        scattered(scene, 3)
        effects = scene.do(Revoked(closing=closing))
        assert bool(transactions(effects)) is closing
        assert bool(commits_of(effects)) is not closing
    (effect,) = transactions(effects)
    assert said(effect.named(7))[0].clean if effect.named else False
    scene.take(effect)
    assert not transactions(scene.do(Revoked(closing=True))), "nothing has changed since"


def test_an_aborted_last_checkpoint_is_followed_by_a_plain_word() -> None:
    scene = Scene()
    scattered(scene, 3)
    assert transactions(scene.do(Revoked(closing=True)))
    (last,) = commits_of(scene.do(MovesAnswered(Ending.ABORTED)))
    assert len(said(last)[0].runs) == 3


def test_a_checkpoint_holds_no_place_of_its_own_in_the_retry_partition(scene: Scene) -> None:
    """Its record is a hole for the books, like a transaction's marker."""
    scattered(scene, 13)
    (effect,) = transactions(scene.tick())
    scene.take(effect)
    half = scene.partition._retry_partition
    assert (half.retries.finished_runs.committable, half.retries.finished_runs.runs) == (1, [])
    scene.do(RetryFetched([parked(1, 3, b"3")]))
    assert half.retries.finished_runs.committable == 1


@pytest.mark.parametrize("parts", [1, 3])
def test_a_checkpoint_among_messages_that_wait_is_passed_by(
    parts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene([parked(0, 3, b"a", due=10**6)])
    scattered(scene, 1)
    scene.do(Revoked(closing=True))
    headers = scene.partition._commits.checkpoints.headers(Checkpoint(1, 2, 3, *[None] * 2))  # type: ignore[arg-type]
    records = [Stored(1 + at, None, headers) for at in range(parts)]
    scene.do(RetryFetched([*records, parked(1 + parts, 5, b"b", due=10**6)]))
    half = scene.partition._retry_partition
    assert half.retries.finished_runs.lowest(9) == [0, 1 + parts]
    assert not half.retries.unreadable


def test_nothing_is_deleted_from_the_checkpoint_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry_partition, "TRIM", 1)
    scene = Scene()
    for _ in range(3):
        scattered(scene, 2)
        effects = scene.tick(EVERY)
        for written_with in transactions(effects):
            scene.take(written_with)
        effects += scene.tick()
        if commits_of(effects):
            scene.do(CommitAnswered(True))
        named = scene.partition._commits.checkpoints.named
        for trim in (effect for effect in effects if isinstance(effect, Trim)):
            assert named is not None
            assert trim.offset <= named.offset


def test_a_successor_goes_on_from_what_was_named() -> None:
    told = [(at, at + 1) for at in range(1, 40, 2)]
    home = LogStart(0, [*told, (50, 51)], in_checkpoint=told, end=EVERYTHING)
    retry = LogStart(3, [(5, 6), (8, 9)], in_checkpoint=[(5, 6)])
    found = Found("t", "id", home, retry, checkpoint=Named(2, 77), retry_id="r")
    stored = CommitBoth(0, "something", Commit(3, "something"))
    start = Start(P[0], 1, 1, stored, found)
    partition = Partition(start, Rules(ordered=True), lambda: 0.5)
    partition.handle(RetryFetched([parked(at, 60 + at, b"%d" % at) for at in (3, 4, 6, 7)]), 0.0)
    partition.handle(RetryCaughtUp(9), 0.0)
    (first,) = commits_of(list(partition.handle(Tick(), 0.0)))
    main, beside = said(first)
    assert (main.checkpoint, main.runs, main.more) == (Named(2, 77), ((50, 51),), True)
    assert (beside.checkpoint, beside.runs, beside.more) == (Named(2, 77), ((8, 9),), True)
    partition.handle(CommitAnswered(True), 0.0)
    (effect,) = transactions(list(partition.handle(Tick(), EVERY + 1)))
    checkpoint = written(effect)
    assert checkpoint.main.runs == (*told, (50, 51))
    assert checkpoint.retry.runs == ((5, 6), (8, 9))
    assert (checkpoint.main.topic_id, checkpoint.retry.topic_id) == ("id", "r")


def test_nonces_of_checkpoints_differ() -> None:
    scene = Scene()
    seen = set()
    for _ in range(3):
        scattered(scene, 2)
        scene.tick()
        scene.do(CommitAnswered(True))
        for effect in transactions(scene.tick(EVERY)):
            seen.add(written(effect).nonce)
            scene.take(effect)
    assert len(seen) == 3
    assert (checkpoint_schedule.EVERY, commits.COMMIT_INTERVAL) == (600.0, 0.15), "as the documents say"


def test_a_dead_letter_is_in_a_checkpoint_at_once() -> None:
    """It lies in another topic: an owner that goes on from a checkpoint without the letter would write it again."""
    scene = Scene(policy=Policy(1))
    scene.fetch((0, b"a"))
    scene.nack(scene.begun()[0])
    store_dead_letter = scene.dead_letters()
    scene.do(Written(True))
    (effect,) = transactions(scene.tick())
    assert effect.records == store_dead_letter
    assert written(effect).main.position == 1
