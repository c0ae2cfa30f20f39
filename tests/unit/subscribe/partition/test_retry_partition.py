"""Scenes of a partition with a retry topic that random schedules rarely or never meet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from kafka_pubsub.model import Ending, Header
from kafka_pubsub.subscribe.formats import ack_map
from kafka_pubsub.subscribe.formats.record import FOREVER, RetryInfo, Why, decode, retry_headers
from kafka_pubsub.subscribe.partition import outage, retry_partition
from kafka_pubsub.subscribe.partition.commits import COMMIT_INTERVAL
from kafka_pubsub.subscribe.partition.effects import (
    Announce,
    Commit,
    CommitBoth,
    Deliver,
    Effect,
    MovedRecord,
    News,
    ReadBodies,
    Restart,
    StoreMoves,
    Trim,
    Withdraw,
    WriteDeadLetters,
)
from kafka_pubsub.subscribe.partition.events import (
    Bodies,
    CommitAnswered,
    Demand,
    Event,
    Fetched,
    LeaseOutcome,
    LeaseReport,
    LeasesReported,
    MovesAnswered,
    RetryCaughtUp,
    RetryFetched,
    Returned,
    Revoked,
    Tick,
    Written,
)
from kafka_pubsub.subscribe.partition.leases import Lease
from kafka_pubsub.subscribe.partition.partition import Partition
from kafka_pubsub.subscribe.partition.settings import (
    EVERYTHING,
    Backoff,
    Exhausted,
    Found,
    LogStart,
    Policy,
    Rules,
    Start,
)
from tests.partition_ids import P
from tests.support import FakeBody

TOPIC_ID = "id"


class Stored(FakeBody):
    """A record of the retry topic."""

    def __init__(self, offset: int, key: bytes | None, headers: Sequence[Header]) -> None:
        super().__init__(1, offset, key)
        self._headers = list(headers)

    def headers(self) -> list[Header] | None:
        return self._headers


def stored(offset: int, key: bytes | None, info: RetryInfo) -> Stored:
    return Stored(offset, key, retry_headers(None, info))


def parked(
    offset: int,
    origin: int,
    key: bytes | None = b"k",
    *,
    attempt: int = 1,
    due: int = 0,
    why: Why = Why.NACKED,
) -> Stored:
    return stored(offset, key, RetryInfo(TOPIC_ID, 0, origin, attempt, 0, due, why))


def leases_of(effects: Sequence[Effect]) -> list[Lease]:
    return [lease for effect in effects if isinstance(effect, Deliver) for lease in effect.leases]


#: A home partition of which nothing is known.
HOME = LogStart(0, end=EVERYTHING)


class Scene:
    """A single partition; its effects are kept until the scene answers."""

    def __init__(
        self,
        retry: Sequence[Stored] = (),
        policy: Policy | None = None,
        home: LogStart = HOME,
        **found: Any,
    ) -> None:
        """`found`: further facts of the takeover."""
        start = Found("t", TOPIC_ID, home, LogStart(0, end=len(retry)), **found)
        rules = Rules(ordered=True, backoff=Backoff(1, 1), policy=policy or Policy(), subscription="s")
        commit = CommitBoth(0, "", Commit(0, ""))
        self.partition = Partition(Start(P[0], 1, 1, commit, start), rules, lambda: 0.5)
        self.now = 0.0
        self.retry = list(retry)
        self.do(RetryFetched(retry))
        self.do(RetryCaughtUp(len(retry)))
        self.do(Tick())
        self.do(CommitAnswered(True))

    def do(self, event: Event) -> list[Effect]:
        effects = list(self.partition.handle(event, self.now))
        self.partition.check()
        return effects

    def tick(self, seconds: float = 1.0) -> list[Effect]:
        self.now += seconds
        return self.do(Tick())

    def settle(self) -> None:
        """The log takes all requests, until nothing is left to be sent."""
        for _ in range(10):
            for effect in self.tick(0.2):
                if isinstance(effect, StoreMoves):
                    self.take(effect)
                elif isinstance(effect, CommitBoth):
                    self.do(CommitAnswered(True))
                elif isinstance(effect, WriteDeadLetters):
                    self.do(Written(True))
                elif isinstance(effect, ReadBodies):
                    self.do(Bodies([self.retry[offset] for offset in effect.offsets]))

    def dead_letters(self) -> list[MovedRecord]:
        """The dead letters that are written next, for which a message may have to be moved and read first."""
        for _ in range(6):
            for effect in self.tick(0.1):
                if isinstance(effect, WriteDeadLetters):
                    return list(effect.records)
                if isinstance(effect, StoreMoves):
                    self.take(effect)
                elif isinstance(effect, CommitBoth):
                    self.do(CommitAnswered(True))
                elif isinstance(effect, ReadBodies):
                    self.do(Bodies([self.retry[offset] for offset in effect.offsets]))
        return []

    def store_dead_letter(self) -> None:
        """The log takes the dead letters, and the commit that completes their dead letter."""
        self.do(Written(True))
        (relocate,) = [effect for effect in self.tick(0.1) if isinstance(effect, StoreMoves)]
        assert all(record.dead for record in relocate.records)
        self.take(relocate)

    def take(self, effect: StoreMoves) -> None:
        first = len(self.retry)
        for each in effect.records:
            if not each.dead:
                self.retry.append(Stored(len(self.retry), each.record.key(), each.headers))
        where = len(self.retry) if effect.parts else None
        self.retry += [Stored(len(self.retry) + at, None, effect.said) for at in range(len(effect.parts))]
        self.do(MovesAnswered(Ending.STORED, checkpoint=where))
        self.do(RetryFetched(self.retry[first:]))

    def begun(self, limit: int = 9) -> list[Lease]:
        return leases_of(self.do(Demand(limit, 9)))

    def fetch(self, *records: tuple[int, bytes | None]) -> None:
        self.do(Fetched([FakeBody(1, offset, key) for offset, key in records]))

    def ack(self, lease: Lease) -> None:
        self.do(LeasesReported([LeaseReport(lease, len(lease.records), LeaseOutcome.FINISHED)]))

    def nack(self, lease: Lease) -> None:
        self.do(LeasesReported([LeaseReport(lease, 0, LeaseOutcome.NACKED, None, "ValueError: no")]))


def infos(effects: Sequence[Effect]) -> list[RetryInfo]:
    take_moves_answered = [
        record for effect in effects if isinstance(effect, StoreMoves) for record in effect.records
    ]
    found = [decode(record.headers[-1][1]) for record in take_moves_answered]
    return [info for info in found if isinstance(info, RetryInfo)]


def news(effects: Sequence[Effect]) -> list[News]:
    return [effect.news for effect in effects if isinstance(effect, Announce)]


def test_what_is_parked_for_ever_goes_again_when_it_is_released() -> None:
    scene = Scene(
        [parked(0, 3, attempt=6, due=FOREVER, why=Why.EXHAUSTED), parked(1, 5, why=Why.BACKLOG)],
        Policy(5, Exhausted.PARK),
    )
    scene.fetch((6, b"other"))
    assert [lease.key for lease in scene.begun()] == [b"other"]
    scene.retry.append(parked(2, 3, why=Why.RELEASE))
    scene.do(RetryFetched(scene.retry[2:]))
    (info,) = infos(effects := scene.tick())
    assert (info.origin, info.attempt, info.why, info.due <= 2000) == (3, 1, Why.REPLAYED, True)
    for effect in effects:
        if isinstance(effect, StoreMoves):
            scene.take(effect)
    scene.settle()
    half = scene.partition._retry_partition
    assert not half.retries.releasing
    assert [lease.records[0].offset() for lease in scene.begun()] == [3]


def test_a_release_that_names_nothing_is_finished_at_once() -> None:
    scene = Scene([parked(0, 3, why=Why.RELEASE)])
    scene.settle()
    assert scene.partition._retry_partition.retries.finished_runs.committable == len(scene.retry)


def test_used_up_attempts_park_the_key_and_say_so() -> None:
    scene = Scene([parked(0, 3, attempt=5)], Policy(5, Exhausted.PARK))
    scene.fetch((9, b"k"))
    (lease,) = scene.begun()
    assert lease.attempt == 5
    scene.nack(lease)
    (info,) = infos(effects := scene.tick())
    assert (info.why, info.due, info.error) == (Why.EXHAUSTED, FOREVER, "ValueError: no")
    for effect in effects:
        if isinstance(effect, StoreMoves):
            scene.take(effect)
    assert News.PARKED in news(scene.tick())
    scene.now += 10**6
    scene.settle()
    assert scene.begun() == []


def test_a_dead_letter_frees_its_key_when_it_is_stored() -> None:
    scene = Scene([parked(0, 3, attempt=5)], Policy(5))
    scene.fetch((9, b"k"))
    scene.nack(scene.begun()[0])
    (dead_letter,) = scene.dead_letters()
    headers = dict(dead_letter.headers)
    assert dead_letter.dead
    assert (headers["ps-dead-attempts"], headers["ps-dead-error-class"]) == (b"5", b"ValueError")
    assert scene.begun() == []
    scene.store_dead_letter()
    assert [lease.records[0].offset() for lease in scene.begun()] == [9]
    assert News.DEAD_LETTER in news(scene.tick())


def test_a_refused_record_waits_alone() -> None:
    scene = Scene()
    scene.fetch((0, b"a"), (1, b"b"))
    for lease in scene.begun():
        scene.nack(lease)
    assert len(infos(scene.tick())) == 2
    scene.do(MovesAnswered(Ending.ABORTED, {0: "too large"}))
    effects = scene.tick(0.01)
    assert [info.origin for info in infos(effects)] == [1]
    assert News.REFUSED in news(effects)
    scene.do(MovesAnswered(Ending.STORED))
    assert [info.origin for info in infos(scene.tick(1.0))] == [0]


def test_an_unknown_outcome_ends_the_ownership() -> None:
    scene = Scene()
    scene.fetch((0, b"a"), (1, b"b"))
    first, second = scene.begun()
    scene.nack(first)
    scene.tick()
    effects = scene.do(MovesAnswered(Ending.UNKNOWN))
    assert Restart() in effects
    assert Withdraw([second]) in effects
    assert scene.tick() == []
    assert scene.begun() == []


def test_the_final_commit_takes_the_waiting_moves_with_it() -> None:
    scene = Scene()
    scene.fetch((0, b"a"))
    scene.nack(scene.begun()[0])
    (last,) = [effect for effect in scene.do(Revoked()) if isinstance(effect, StoreMoves)]
    found = ack_map.decode(last.commit.metadata, last.commit.offset)
    assert found is not None
    assert (last.commit.offset, found.clean) == (1, True)
    (plain,) = scene.do(MovesAnswered(Ending.ABORTED))
    assert isinstance(plain, CommitBoth)
    assert plain.offset == 0


def test_a_record_that_is_gone_is_reported_and_frees_its_key() -> None:
    scene = Scene([parked(at, at, why=Why.BACKLOG) for at in range(40)])
    scene.fetch((50, b"k"))
    (lease,) = scene.begun()
    scene.do(LeasesReported([LeaseReport(lease, len(lease.records), LeaseOutcome.FINISHED)]))
    (ask,) = [effect for effect in scene.tick() if isinstance(effect, ReadBodies)]
    scene.do(Bodies([], ask.offsets))
    assert News.GONE in news(scene.tick())
    scene.settle()
    assert [lease.records[0].offset() for lease in scene.begun()] == [50]


def test_an_unreadable_record_is_dead_lettered_as_it_is() -> None:
    rubbish = Stored(0, b"k", [("kind", b"x"), ("ps-retry", b"rubbish")])
    scene = Scene([rubbish], Policy(5))
    (dead_letter,) = scene.dead_letters()
    assert list(dead_letter.headers)[:2] == rubbish.headers()
    scene.store_dead_letter()
    assert scene.partition._retry_partition.retries.finished_runs.committable == len(scene.retry)


def test_without_dead_letters_an_unreadable_record_stays_and_holds_nobody_up() -> None:
    scene = Scene([Stored(0, b"k", [("ps-retry", b"rubbish")]), parked(1, 3)])
    scene.fetch((4, b"k"))
    scene.settle()
    assert [lease.records[0].offset() for lease in scene.begun()] == [3]
    assert scene.partition._retry_partition.retries.finished_runs.committable == 0


def test_what_lies_below_the_commit_is_trimmed_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry_partition, "TRIM", 100)
    scene = Scene([parked(at, at, None) for at in range(250)])
    trims: list[int] = []
    for _ in range(40):
        leases = scene.begun(20)
        scene.do(LeasesReported([LeaseReport(lease, 1, LeaseOutcome.FINISHED) for lease in leases]))
        for effect in scene.tick(0.2):
            if isinstance(effect, CommitBoth):
                scene.do(CommitAnswered(True))
            elif isinstance(effect, Trim):
                trims.append(effect.offset)
    assert len(trims) == 2
    assert all(later - earlier >= 100 for earlier, later in zip([0, *trims], trims, strict=False))


def test_in_an_outage_it_probes_and_dead_letters_few() -> None:
    scene = Scene([parked(at, at, b"%d" % at, attempt=5) for at in range(60)], Policy(5))
    scene.fetch((100, b"x"))
    told: list[News] = []
    dead = 0
    begun = 0
    for _ in range(300):
        leases = scene.begun(10)
        begun += len(leases)
        for lease in leases:
            scene.nack(lease)
        for effect in scene.tick(0.1):
            told += news([effect])
            if isinstance(effect, CommitBoth):
                scene.do(CommitAnswered(True))
            elif isinstance(effect, WriteDeadLetters):
                dead += len(effect.records)
                scene.do(Written(True))
            elif isinstance(effect, StoreMoves):
                scene.take(effect)
            elif isinstance(effect, ReadBodies):
                scene.do(Bodies([scene.retry[offset] for offset in effect.offsets]))
    assert told.count(News.OUTAGE) == 1
    assert dead <= outage.ENOUGH + 10 + 300 * 0.1 / outage.DEAD_LETTERS_EVERY
    assert begun <= outage.ENOUGH + 10 + 300 * 0.1 / outage.PROBE_EVERY + 1


def test_a_refused_commit_is_not_sent_again_and_again_at_once() -> None:
    scene = Scene()
    scene.do(Revoked())
    scene.do(CommitAnswered(True))
    scene.do(Returned())
    sent = 0
    for _ in range(100):
        wake = scene.partition.wakeup_at()
        if wake is not None and wake <= scene.now:
            for effect in scene.do(Tick()):
                if isinstance(effect, CommitBoth):
                    sent += 1
                    scene.do(CommitAnswered(False))
        scene.now += 0.01
    assert 2 <= sent <= 1 + 1.0 / COMMIT_INTERVAL + 1


def test_what_was_being_read_at_a_revoke_is_asked_for_again() -> None:
    scene = Scene([parked(at, at, why=Why.BACKLOG) for at in range(40)])
    scene.fetch((50, b"k"))
    (lease,) = scene.begun()
    scene.do(LeasesReported([LeaseReport(lease, len(lease.records), LeaseOutcome.FINISHED)]))
    (ask,) = [effect for effect in scene.tick() if isinstance(effect, ReadBodies)]
    scene.do(CommitAnswered(True))
    scene.do(Revoked())
    scene.do(Returned())
    assert ask in scene.tick()


def stuffed_by_the_parked() -> Scene:
    """Two keys that are parked for ever, with a backlog below its bound each."""
    scene = Scene([parked(0, 0, b"a", due=FOREVER), parked(1, 1, b"b", due=FOREVER)])
    scene.fetch(*[(offset, b"ab"[offset % 2 : offset % 2 + 1]) for offset in range(2, 42)])
    return scene


def test_a_full_partition_moves_what_waits_behind_the_parked() -> None:
    scene = stuffed_by_the_parked()
    scene.now += 1.0
    moved = [info.origin for info in infos(scene.do(Tick(stuffed=True)))]
    assert len(moved) >= 20, "half of what it holds"
    assert scene.partition._offsets.unfinished, "and no more than that at once"


def test_below_its_bound_a_backlog_stays_while_there_is_room() -> None:
    scene = stuffed_by_the_parked()
    assert infos(scene.tick()) == []


def test_a_full_partition_waits_for_what_can_go_on_by_itself() -> None:
    scene = stuffed_by_the_parked()
    scene.fetch((42, b"free"))
    scene.now += 1.0
    assert infos(scene.do(Tick(stuffed=True))) == [], "a key is ready"
    (lease,) = scene.begun()
    assert infos(scene.do(Tick(stuffed=True))) == [], "its handler has just begun"
    scene.do(LeasesReported([LeaseReport(lease, 1, LeaseOutcome.FINISHED)]))
    scene.tick()
    scene.do(CommitAnswered(True))
    assert infos(scene.do(Tick(stuffed=True))) != []


def test_messages_that_always_fail_are_no_outage_for_the_others() -> None:
    """More of them than an outage takes, hardly any traffic beside, and no dead letters."""
    scene = Scene()
    bad = range(outage.ENOUGH + 5)
    scene.fetch(*[(offset, b"bad%d" % offset) for offset in bad])
    good: list[int] = []
    probed = False
    for second in range(300):
        if second % 20 == 10:
            scene.fetch((100 + second, b"good%d" % second))
        for lease in scene.begun(50):
            offset = lease.records[0].offset()
            good += [offset] * (offset >= 100)
            outcome = LeaseOutcome.FINISHED if offset >= 100 else LeaseOutcome.NACKED
            scene.do(LeasesReported([LeaseReport(lease, int(offset >= 100), outcome)]))
        scene.settle()
        half = scene.partition._retry_partition
        probed = probed or half.retries.outage.probing
        if second % 20 == 18:
            assert good[-1:] == [100 + second - 8], "it waited for messages that fail anyway"
    assert probed


def test_a_parked_message_that_has_not_failed_is_probed_before_those_that_have() -> None:
    bad = [parked(at, at, b"bad%d" % at, attempt=2) for at in range(outage.ENOUGH + 5)]
    scene = Scene([*bad, parked(len(bad), 100, b"good", why=Why.BACKLOG)])
    scene.fetch((101, b"end"))
    half = scene.partition._retry_partition
    for body in scene.retry:
        scene.do(Bodies([body]))
    half.retries.outage.probing = True
    probed: list[int] = []
    for _ in range(6):
        for lease in scene.begun(50):
            probed.append(lease.records[0].offset())
            good = probed[-1] >= 100
            scene.do(
                LeasesReported(
                    [LeaseReport(lease, int(good), LeaseOutcome.FINISHED if good else LeaseOutcome.NACKED)]
                )
            )
        scene.settle()
    assert {100, 101} <= {*probed}, "whatever has failed, and is due, is older"


@pytest.mark.parametrize("key", [b"k", None])
def test_used_up_attempts_are_reported_to_the_log_before_the_dead_letter_is_written(
    key: bytes | None,
) -> None:
    scene = Scene([parked(0, 3, key, attempt=5)], Policy(5))
    scene.fetch((9, b"other"))
    scene.settle()
    scene.nack(next(lease for lease in scene.begun() if lease.records[0].offset() == 3))
    (relocate,) = [effect for effect in scene.tick(0.01) if isinstance(effect, StoreMoves)]
    (info,) = infos([relocate])
    assert (info.origin, info.why, info.attempt, info.error) == (3, Why.UNBURIED, 6, "ValueError: no")
    scene.take(relocate)

    successor = Scene(scene.retry[1:], Policy(5))
    successor.retry = list(scene.retry)  # read by offset
    successor.fetch((9, b"other"))
    successor.now = 2.0
    (dead_letter,) = successor.dead_letters()
    assert [lease.records[0].offset() for lease in successor.begun()] == [9]
    headers = dict(dead_letter.headers)
    assert dead_letter.dead
    assert (headers["ps-dead-attempts"], headers["ps-dead-error-class"]) == (b"5", b"ValueError")


def test_what_is_not_taken_is_delivered_again_if_the_policy_allows_more_attempts() -> None:
    scene = Scene([parked(0, 3, attempt=6, why=Why.UNBURIED)], Policy(6))
    scene.fetch((9, b"k"))
    scene.settle()
    (lease,) = scene.begun()
    assert (lease.records[0].offset(), lease.attempt) == (3, 6)


def test_what_is_not_taken_parks_its_key_if_the_policy_says_so_now() -> None:
    scene = Scene([parked(0, 3, attempt=6, why=Why.UNBURIED)], Policy(5, Exhausted.PARK))
    scene.fetch((9, b"k"))
    scene.settle()
    assert scene.begun() == []
    assert scene.dead_letters() == []
    last = decode((scene.retry[-1].headers() or [])[-1][1])
    assert isinstance(last, RetryInfo)
    assert (last.why, last.attempt, last.due) == (Why.EXHAUSTED, 5, FOREVER)
