"""Inline walking: the pace, and a holder that is taken over at every moment there is.

The walking thread is the test's own: a take-over at a chosen moment is made inside the callback, or around the
holder's lock, which are all the moments at which what another thread finds can differ.
"""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Sequence
from itertools import product
from types import TracebackType

import pytest

from kafka_pubsub import Message
from kafka_pubsub.client.holders import Holder
from kafka_pubsub.client.inline import (
    LEFT,
    LONGEST,
    LONGEST_PENALTY,
    LONGEST_WALK,
    PENALTY,
    QUICK,
    SHORTEST,
    SLACK,
    InlineHolder,
    Pace,
    Walk,
)
from kafka_pubsub.core import inline
from kafka_pubsub.core.events import Passed, Record, Release, Settlement, Verdict
from kafka_pubsub.core.leases import Lease
from tests.support import FakeBody
from tests.unit.client.holding import Reported

KEYS = [b"a", b"b", b"a", None, b"b", b"c"]


def holder_of(
    keys: Sequence[bytes | None] = KEYS, *, ordered: bool = True, spare: int = LONGEST
) -> tuple[InlineHolder, Reported]:
    reports = Reported()
    lease = Lease(0, 1, None, [FakeBody(offset=at, key=key) for at, key in enumerate(keys)], 1)
    return InlineHolder(lease, reports, ordered=ordered, spare=spare), reports


def offsets(records: Sequence[Record]) -> list[int]:
    return [record.offset() for record in records]


def left(passed: Passed) -> dict[int, Verdict]:
    return {release.lease.records[0].offset(): release.verdict for release in passed.left}


def is_passed(told: Passed | Release | None) -> Passed:
    assert isinstance(told, Passed)
    return told


def acked(message: Message) -> None:
    message.ack()


def narrow(lease: Lease, passed: Passed) -> Passed:
    """What the core does when it is told of a take-over; hands on what it was told, as it stood then."""
    finished = inline.finished(passed)
    assert not set(offsets(finished)) & set(left(passed))
    if passed.current:
        lease.records, lease.key = [lease.records[passed.reached]], lease.records[passed.reached].key()
    return passed


# The pace


def walked(pace: Pace, times: int = 1, *, left: int = 0, each: float = QUICK / 2, now: float = 0.0) -> None:
    for _ in range(times):
        count = max(pace.limit(now), SHORTEST)
        pace.walked(count, left, count * each, now)


def test_reads_grow_while_callbacks_are_quick_and_no_longer_than_allowed() -> None:
    pace, limits = Pace(), []
    for _ in range(12):
        limits.append(pace.limit(0.0))
        walked(pace)
    assert limits[:4] == [SHORTEST, 2 * SHORTEST, 4 * SHORTEST, 8 * SHORTEST]
    assert limits[-1] == LONGEST == max(limits)


def slow(pace: Pace, now: float) -> None:
    """Walks that take long, until none is asked for any more."""
    while limit := pace.limit(now):
        pace.walked(limit, 0, 1.0, now)


def test_a_slow_callback_ends_inline_walking_for_a_while() -> None:
    pace = Pace()
    pace.walked(SHORTEST, 0, 2 * SLACK, 5.0)
    assert pace.limit(5.0 + PENALTY - 0.01) == 0
    assert pace.limit(5.0 + PENALTY) == SHORTEST


def test_one_slow_walk_after_many_quick_ones_only_makes_the_next_ones_shorter() -> None:
    pace = Pace()
    walked(pace, 12)
    assert pace.limit(5.0) == LONGEST
    pace.walked(LONGEST, 0, 1.0, 5.0)
    assert SHORTEST < pace.limit(5.0) < LONGEST
    for _ in range(3):
        pace.walked(pace.limit(5.0), 0, 1.0, 5.0)
    assert not pace.limit(5.0)


def test_the_while_doubles_to_a_limit_and_is_short_again_when_callbacks_have_proved_quick() -> None:
    pace, now, penalties = Pace(), 0.0, []
    for _ in range(10):
        slow(pace, now)
        penalties.append(next(s for s in (PENALTY * 2**n for n in range(10)) if pace.limit(now + s)))
        now += 1000.0
    assert penalties[:3] == [PENALTY, 2 * PENALTY, 4 * PENALTY]
    slow(pace, now)
    assert pace.limit(now + LONGEST_PENALTY - 1) == 0
    assert pace.limit(now + LONGEST_PENALTY) == SHORTEST
    now += 1000.0
    walked(pace, 12, now=now)
    slow(pace, now)
    assert pace.limit(now + PENALTY) == SHORTEST


def test_one_of_few_records_may_take_the_time_of_two() -> None:
    pace = Pace()
    pace.walked(1, 0, 1.9 * QUICK, 0.0)
    assert pace.limit(0.0) == 2 * SHORTEST


def test_callbacks_that_keep_many_messages_are_not_called_inline() -> None:
    pace = Pace()
    walked(pace, 12)
    walked(pace, left=int(LEFT * LONGEST))
    assert pace.limit(0.0)
    walked(pace, left=int(LEFT * LONGEST) + 1)
    assert not pace.limit(0.0)


# A walk that nobody disturbs


def test_all_acked_is_one_word() -> None:
    holder, reports = holder_of()
    seen: list[tuple[int, int]] = []

    def handle(message: Message) -> None:
        seen.append((message.offset, message.delivery_attempt))
        message.ack()

    passed = is_passed(holder.pass_through(handle))
    assert passed == Passed(holder.lease, len(KEYS), [], [])
    assert seen == [(at, 1) for at in range(len(KEYS))]
    assert offsets(inline.finished(passed)) == [0, 1, 2, 3, 4, 5]
    assert holder.lease.holder is None
    assert (reports.releases, reports.settlements, reports.late) == ([], [], 0)


VERBS: dict[str, Callable[[Message], object]] = {
    "nack": lambda message: message.nack(),
    "nack later": lambda message: message.nack(delay=2.5),
    "extend to nothing": lambda message: message.extend(0),
    "raise": lambda message: 1 / 0,
    "keep": lambda message: None,
}


def at(offset: int, verb: Callable[[Message], object]) -> Callable[[Message], None]:
    """A callback that acks all but one."""

    def handle(message: Message) -> None:
        if message.offset == offset:
            verb(message)
        else:
            message.ack()

    return handle


@pytest.mark.parametrize("name", VERBS)
def test_what_is_not_acked_is_left_with_a_lease_of_its_own_and_its_key_is_passed_over(name: str) -> None:
    holder, _ = holder_of()
    passed = is_passed(holder.pass_through(at(0, VERBS[name])))
    (release,) = passed.left
    assert release.verdict is (Verdict.KEPT if name == "keep" else Verdict.NACKED)
    assert release.delay == (2.5 if name == "nack later" else None)
    assert (release.lease.key, release.lease.attempt, release.done) == (b"a", 1, 0)
    assert release.lease is not holder.lease
    assert offsets(release.lease.records) == [0]
    assert offsets(passed.skipped) == [2]
    assert offsets(inline.finished(passed)) == [1, 3, 4, 5]


def test_records_without_a_key_are_never_passed_over() -> None:
    holder, _ = holder_of([None, None, None])
    passed = is_passed(holder.pass_through(lambda message: message.nack()))
    assert list(left(passed)) == [0, 1, 2]
    assert not passed.skipped


def test_without_an_order_no_key_is_blocked_nor_passed_over() -> None:
    holder, _ = holder_of([b"a", b"a"], ordered=False)
    passed = is_passed(holder.pass_through(at(0, VERBS["keep"])))
    assert [release.lease.key for release in passed.left] == [None]
    assert offsets(inline.finished(passed)) == [1]


def test_the_delay_of_a_nack_is_its_own() -> None:
    holder, _ = holder_of([b"a", b"b", b"c"])
    verbs = [VERBS["nack later"], VERBS["nack"], VERBS["raise"]]
    passed = is_passed(holder.pass_through(lambda message: verbs[message.offset](message)))
    assert [release.delay for release in passed.left] == [2.5, None, None]


def test_a_nack_that_crossed_the_end_of_its_callback_does_not_delay_the_next_one() -> None:
    holder, reports = holder_of([b"a", b"b"])
    kept: list[Message] = []

    def handle(message: Message) -> None:
        if not kept:
            kept.append(message)
            return
        holder.nack(kept[0], 600)  # another thread, which read the holder before the message was left
        raise RuntimeError

    passed = is_passed(holder.pass_through(handle))
    assert [(release.verdict, release.delay) for release in passed.left] == [
        (Verdict.KEPT, None),
        (Verdict.NACKED, None),
    ]
    assert reports.settlements == [Settlement(passed.left[0].lease, 0, acked=False, delay=600)]


@pytest.mark.parametrize("error", [SystemExit(), KeyboardInterrupt()])
def test_whatever_a_callback_raises_the_walk_goes_on(error: BaseException) -> None:
    holder, _ = holder_of([b"a", b"b"])

    def raises(message: Message) -> None:
        raise error

    passed = is_passed(holder.pass_through(at(0, raises)))
    assert left(passed) == {0: Verdict.NACKED}
    assert offsets(inline.finished(passed)) == [1]


def test_a_callback_that_raises_after_its_ack_has_acked() -> None:
    holder, _ = holder_of([b"a"])

    def handle(message: Message) -> None:
        message.ack()
        raise RuntimeError("afterwards")

    assert not is_passed(holder.pass_through(handle)).left


@pytest.mark.parametrize("twice", ["ack", "nack"])
@pytest.mark.parametrize("once", ["ack", "nack"])
def test_a_second_verdict_changes_nothing_and_is_counted(once: str, twice: str) -> None:
    holder, reports = holder_of([b"a"])

    def handle(message: Message) -> None:
        getattr(message, once)()
        getattr(message, twice)()

    passed = is_passed(holder.pass_through(handle))
    assert left(passed) == ({} if once == "ack" else {0: Verdict.NACKED})
    assert reports.late == 1


@pytest.mark.parametrize("spare", [1, 2])
def test_no_more_messages_are_kept_than_allowed_and_then_nothing_begins(spare: int) -> None:
    holder, _ = holder_of([b"a", b"b", b"c", b"d"], spare=spare)
    seen: list[int] = []
    passed = is_passed(holder.pass_through(lambda message: seen.append(message.offset)))
    assert seen == list(range(spare))
    assert passed.reached == spare
    assert list(left(passed)) == seen


def test_nacked_messages_are_not_out_so_they_use_up_no_allowance() -> None:
    holder, _ = holder_of([b"a", b"b", b"c", b"d"], spare=1)
    passed = is_passed(holder.pass_through(lambda message: message.nack()))
    assert passed.reached == 4


# What was left, afterwards


def kept(verb: Callable[[Message], object] = VERBS["keep"]) -> tuple[Message, Lease, Reported]:
    holder, reports = holder_of([b"a", b"b"])
    messages: list[Message] = []

    def handle(message: Message) -> None:
        messages.append(message)
        verb(message)

    passed = is_passed(holder.pass_through(at(0, handle)))
    return messages[0], passed.left[0].lease, reports


def test_an_ack_after_the_walk_settles_the_lease_of_its_own_once() -> None:
    message, lease, reports = kept()
    message.ack()
    assert reports.settlements == [Settlement(lease, 0, acked=True)]
    assert lease.holder is None
    message.ack()
    assert (len(reports.settlements), reports.late) == (1, 1)


def test_a_nack_and_an_extension_after_the_walk_are_about_the_lease_of_its_own() -> None:
    message, lease, reports = kept()
    message.extend(60)
    message.nack(delay=3)
    assert reports.extensions == [(lease, 0, 60)]
    assert reports.settlements == [Settlement(lease, 0, acked=False, delay=3)]


def test_when_the_lease_of_its_own_is_over_an_ack_is_late() -> None:
    message, lease, reports = kept()
    holder = lease.holder
    assert isinstance(holder, Holder)
    holder.withdrawn = True
    message.ack()
    assert (reports.settlements, reports.late) == ([], 1)


def test_an_ack_id_from_inside_the_callback_acks_later() -> None:
    message, lease, reports = kept(lambda message: message.ack_id)
    assert list(reports.ack_ids) == [message.ack_id]
    reports.ack_ids[message.ack_id].ack()
    assert reports.settlements == [Settlement(lease, 0, acked=True)]


@pytest.mark.parametrize("verb", ["keep", "nack"])
def test_nothing_is_left_to_the_collector(verb: str) -> None:
    gc.disable()
    try:
        holder, _ = holder_of([b"a", b"b"])
        old = [weakref.ref(record) for record in holder.lease.records]
        passed = is_passed(holder.pass_through(at(0, VERBS[verb])))
        if verb == "keep":
            passed.left[0].lease.holder = None  # as the core does when it is over
        del holder, passed
        assert [each() for each in old] == [None, None]
    finally:
        gc.enable()


def test_who_is_taken_over_before_it_began_is_not_left_to_the_collector_either() -> None:
    gc.disable()
    try:
        holder, _ = holder_of([b"a"])
        old = weakref.ref(holder.lease.records[0])
        holder.take_over()
        del holder
        assert old() is None
    finally:
        gc.enable()


# An ack on another thread, while its callback returns


def test_an_ack_between_the_callback_and_the_lock_counts_in_the_walk() -> None:
    holder, reports = holder_of([b"a", b"a"])
    messages: list[Message] = []
    holder._lock = Moments(0, lambda: acked(messages[0]))  # type: ignore[assignment]
    passed = is_passed(holder.pass_through(at(0, messages.append)))
    assert offsets(inline.finished(passed)) == [0, 1]
    assert not passed.left
    # It was told by itself as well or not at all; a settlement of a lease that was never opened changes nothing.
    assert all(settlement.lease is not holder.lease for settlement in reports.settlements)


@pytest.mark.parametrize("verb", ["ack", "nack"])
def test_a_verdict_that_crosses_the_change_of_its_holder_is_told_by_one_of_them(verb: str) -> None:
    """On another thread, at any moment: by the walk, by itself, or by both; never by neither."""
    for _ in range(300):
        holder, reports = holder_of([b"a", b"b"])
        threads: list[threading.Thread] = []

        def handle(message: Message, threads: list[threading.Thread] = threads) -> None:
            threads.append(threading.Thread(target=getattr(message, verb)))
            threads[0].start()

        passed = is_passed(holder.pass_through(at(0, handle)))
        threads[0].join(20)
        by_walk = left(passed).get(0) is not Verdict.KEPT
        by_itself = [each for each in reports.settlements if each.acked is (verb == "ack")]
        assert by_walk or by_itself
        if by_itself and passed.left:
            assert by_itself[0].lease is passed.left[0].lease
        assert not reports.late


def test_an_ack_that_had_read_the_old_holder_reaches_the_new_one() -> None:
    """The ack has looked at the state, then the message is left, then the ack goes on."""
    holder, reports = holder_of([b"a"])
    messages: list[Message] = []
    passed: list[Passed] = []

    class Slow:
        """Stands for the old holder in the thread that acks: looking whether it is withdrawn takes long."""

        reports = None

        @property
        def withdrawn(self) -> bool:
            message._sink = holder
            passed.append(is_passed(told_later()))
            return False

    def told_later() -> Passed | Release | None:
        assert holder._leaves(message, message._record)  # type: ignore[arg-type]
        return holder._end()

    holder.pass_through(messages.append)  # a message of this holder's kind, undecided
    holder, reports = holder_of([b"a"])
    message = messages[0]
    message._sink = Slow()  # type: ignore[assignment]
    message.ack()
    assert left(passed[0]) == {0: Verdict.KEPT}
    assert reports.settlements == [Settlement(passed[0].left[0].lease, 0, acked=True)]


# Taken over


def test_before_it_began_all_goes_back() -> None:
    holder, _ = holder_of()
    passed = holder.take_over()
    assert passed == Passed(holder.lease, 0, [], [])
    assert holder.pass_through(lambda message: pytest.fail("it was called")) is None, (
        "the walking thread has nothing to do or to say any more"
    )
    assert holder.take_over() is None


@pytest.mark.parametrize("offset", range(len(KEYS)))
@pytest.mark.parametrize(
    ("verb", "verdict"),
    [
        ("ack", Verdict.FINISHED),
        ("nack", Verdict.NACKED),
        ("nack later", Verdict.NACKED),
        ("raise", Verdict.NACKED),
        ("keep", Verdict.KEPT),
    ],
)
@pytest.mark.parametrize("first", ["take over", "verdict"])
def test_inside_a_callback_its_record_goes_on_alone(
    offset: int, verb: str, verdict: Verdict, first: str
) -> None:
    holder, _ = holder_of()
    lease, taken, seen = holder.lease, [], []

    def handle(message: Message) -> None:
        seen.append(message.offset)
        if message.offset != offset:
            message.ack()
            return
        verbs: list[Callable[[], object]] = [
            lambda: taken.append(narrow(lease, is_passed(holder.take_over())))
        ]
        verbs.insert(first == "take over", lambda: {**VERBS, "ack": acked}[verb](message))
        try:
            verbs[0]()
        finally:
            verbs[1]()

    told = holder.pass_through(handle)
    assert seen == list(range(offset + 1)), "nothing begins after a take-over"
    assert [(each.reached, each.current, each.left, each.skipped) for each in taken] == [
        (offset, True, [], [])
    ]
    assert isinstance(told, Release)
    assert told.lease is lease
    assert (told.verdict, told.done) == (verdict, 1 if verb == "ack" else 0)
    assert told.delay == (2.5 if verb == "nack later" else None)
    assert holder.take_over() is None


@pytest.mark.parametrize("late", ["ack", "nack"])
def test_a_message_that_its_callback_kept_after_a_take_over_is_settled_later(late: str) -> None:
    holder, reports = holder_of()
    messages: list[Message] = []

    def handle(message: Message) -> None:
        narrow(holder.lease, is_passed(holder.take_over()))
        messages.append(message)

    told = holder.pass_through(handle)
    assert told == Release(holder.lease, 0, Verdict.KEPT)
    getattr(messages[0], late)()
    assert reports.settlements == [Settlement(holder.lease, 0, acked=late == "ack")]


def test_what_was_left_and_passed_over_before_a_take_over_is_told_by_it() -> None:
    holder, _ = holder_of([b"a", b"b", b"a", b"b", b"a"])
    taken: list[Passed] = []

    def handle(message: Message) -> None:
        if message.offset == 3:
            taken.append(narrow(holder.lease, is_passed(holder.take_over())))
        if message.offset:
            message.ack()

    told = holder.pass_through(handle)
    (passed,) = taken
    assert (passed.reached, passed.current) == (3, True)
    assert left(passed) == {0: Verdict.KEPT}
    assert offsets(passed.skipped) == [2]
    assert told == Release(holder.lease, 1, Verdict.FINISHED)


# Every moment, whatever the callbacks do


class Moments:
    """A holder's lock, and a count of the moments at which another thread might come in between; it does at one."""

    def __init__(self, chosen: int, then: Callable[[], object]) -> None:
        self.passed = 0
        self._chosen = chosen
        self._then = then
        self._lock = threading.Lock()
        self._inside = False

    def moment(self) -> None:
        if not self._inside:
            self._inside = True
            if self.passed == self._chosen:
                self._then()
            self._inside = False
            self.passed += 1

    def __enter__(self) -> None:
        self.moment()
        self._lock.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()
        self.moment()


class Story:
    """One walk with a take-over at a chosen moment; `holds` says whether all records are accounted for."""

    def __init__(self, keys: Sequence[bytes | None], verbs: Sequence[str], chosen: int) -> None:
        self.holder, self.reports = holder_of(keys)
        self.lease, self.verbs = self.holder.lease, verbs
        self.records = list(self.lease.records)
        self.called: list[int] = []
        self.taken: list[Passed] = []
        self.moments = Moments(chosen, self.take_over)
        self.holder._lock = self.moments  # type: ignore[assignment]
        self.told = self.holder.pass_through(self.handle)

    def take_over(self) -> None:
        passed = self.holder.take_over()
        if passed is not None:
            self.taken.append(passed)
            self.finished = offsets(inline.finished(passed))
            self.rest = offsets(self.lease.records[passed.reached :])
            narrow(self.lease, passed)

    def handle(self, message: Message) -> None:
        self.called.append(message.offset)
        self.moments.moment()
        {**VERBS, "ack": acked}[self.verbs[message.offset]](message)
        self.moments.moment()

    def holds(self) -> None:
        if not self.taken:
            self.taken.append(is_passed(self.told))
            self.finished, self.rest = offsets(inline.finished(self.taken[0])), []
        (passed,) = self.taken
        current = [self.rest.pop(0)] if passed.current else []
        places = [*self.finished, *left(passed), *offsets(passed.skipped), *self.rest, *current]
        assert sorted(places) == offsets(self.records), "a record is in no place, or in two"
        assert sorted([*self.finished, *left(passed), *current]) == self.called
        assert all(self.verbs[each] == "ack" for each in self.finished)
        assert all(self.verbs[each] != "ack" for each in left(passed))
        self.word_about(current, passed)
        self.order(passed)

    def word_about(self, current: Sequence[int], passed: Passed) -> None:
        """What the walking thread says at its end: of its current record if it has one, nothing else."""
        if not current:
            assert self.told is None or self.told is passed
            return
        assert isinstance(self.told, Release)
        wanted = {"ack": Verdict.FINISHED, "nack": Verdict.NACKED, "keep": Verdict.KEPT}[
            self.verbs[current[0]]
        ]
        assert (self.told.lease, self.told.verdict) == (self.lease, wanted)
        assert offsets(self.lease.records) == current

    def order(self, passed: Passed) -> None:
        """Nothing of a key is called after one that wasn't acked."""
        for at, record in enumerate(self.records):
            before = [each for each in range(at) if record.key() is not None and KEYS[each] == record.key()]
            if at in self.called:
                assert all(each in self.called and self.verbs[each] == "ack" for each in before)
        assert offsets(passed.skipped) == sorted(offsets(passed.skipped))


@pytest.mark.parametrize("verbs", list(product(["ack", "nack", "keep"], repeat=4)), ids="-".join)
def test_a_take_over_at_any_moment_leaves_each_record_in_one_place(verbs: Sequence[str]) -> None:
    keys = KEYS[:4]
    undisturbed = Story(keys, verbs, chosen=-1)
    undisturbed.holds()
    assert undisturbed.moments.passed >= 10
    for chosen in range(undisturbed.moments.passed):
        story = Story(keys, verbs, chosen)
        story.holds()
        assert story.holder.take_over() is None or story.told is story.taken[0]


def test_who_is_through_says_so_by_the_take_over_too() -> None:
    """Or else the next fetcher would read on before anybody has heard which keys are blocked."""
    holder, _ = holder_of([b"a", b"a"])
    passed = holder.pass_through(lambda message: None)
    assert passed is not None
    assert holder.take_over() is passed


# Extensions


class Engine(Reported):
    """Takes over when it is told to, as the engine does."""

    def __init__(self) -> None:
        super().__init__()
        self.holder: InlineHolder | None = None
        self.taken: list[Passed] = []

    def take_over(self) -> None:
        assert self.holder is not None
        if (passed := self.holder.take_over()) is not None:
            self.taken.append(narrow(self.holder.lease, passed))


def engine_of(keys: Sequence[bytes | None]) -> tuple[InlineHolder, Engine]:
    reports = Engine()
    holder, _ = holder_of(keys)
    holder.reports = reports
    reports.holder = holder
    return holder, reports


def test_an_extension_inside_the_callback_gives_the_message_its_own_lease_first() -> None:
    holder, reports = engine_of([b"a", b"b", b"c"])
    seen: list[int] = []

    def handle(message: Message) -> None:
        seen.append(message.offset)
        if message.offset == 1:
            message.extend(60)
            message.extend(90)
        message.ack()

    told = holder.pass_through(handle)
    assert [(passed.reached, passed.current) for passed in reports.taken] == [(1, True)]
    assert reports.extensions == [(holder.lease, 0, 60), (holder.lease, 0, 90)]
    assert told == Release(holder.lease, 1, Verdict.FINISHED)
    assert seen == [0, 1]


def test_an_extension_that_finds_the_message_left_meanwhile_is_about_its_own_lease() -> None:
    """Another thread's, which read the holder before the message was left."""
    holder, reports = engine_of([b"a", b"b"])
    messages: list[Message] = []
    passed = is_passed(holder.pass_through(at(0, messages.append)))
    holder.extend(messages[0], 60)
    assert reports.extensions == [(passed.left[0].lease, 0, 60)]


def test_a_late_extension_takes_nothing_over() -> None:
    holder, reports = engine_of([b"a"])

    def handle(message: Message) -> None:
        message.ack()
        message.extend(60)

    assert is_passed(holder.pass_through(handle)).reached == 1
    assert (reports.taken, reports.extensions, reports.late) == ([], [], 1)


# Who looks on


def test_a_callback_that_stands_is_found_by_how_long_nothing_has_moved() -> None:
    holder, _ = holder_of([b"a", b"b"])
    walk = Walk([holder])
    assert walk.stands(5.0) == 0
    assert walk.stands(5.06) == pytest.approx(0.06)
    next(holder._records)
    assert walk.stands(5.09) == 0
    assert walk.stands(5.11) == pytest.approx(0.02)


def test_a_walk_whose_callbacks_never_stand_is_found_when_all_of_it_takes_long() -> None:
    holder, _ = holder_of([b"%d" % at for at in range(1000)])
    walk, now = Walk([holder]), 5.0
    while walk.stands(now) < 0.05:
        next(holder._records)
        now += 0.01
    assert LONGEST_WALK <= now - 5.0 < 2 * LONGEST_WALK


def test_a_walk_without_holders_can_be_looked_at() -> None:
    assert Walk([]).stands(1.0) == 0
