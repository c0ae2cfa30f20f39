"""When a message comes again: the bounds of the backoff, and the line of those that wait."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kafka_pubsub.core.redelivery import SOON, Backoff, Waiting
from tests.support import FakeBody

ATTEMPTS = st.one_of(st.integers(2, 12), st.integers(2, 10**9))
JITTER = st.floats(0, 1, exclude_max=True)


@st.composite
def backoffs(draw: st.DrawFn) -> Backoff:
    minimum = draw(st.floats(0, 600))
    return Backoff(minimum, draw(st.floats(minimum, 86_400)))


@given(backoff=backoffs(), attempt=ATTEMPTS, jitter=JITTER)
def test_a_wait_is_between_the_bounds(backoff: Backoff, attempt: int, jitter: float) -> None:
    assert backoff.minimum <= backoff.wait(attempt, jitter) <= backoff.maximum


@given(backoff=backoffs(), attempt=ATTEMPTS, jitter=JITTER)
def test_a_wait_never_shrinks_from_one_attempt_to_the_next(
    backoff: Backoff, attempt: int, jitter: float
) -> None:
    assert backoff.wait(attempt, jitter) <= backoff.wait(attempt + 1, jitter)


@given(backoff=backoffs(), attempt=ATTEMPTS, jitter=st.tuples(JITTER, JITTER))
def test_more_jitter_is_a_longer_wait(backoff: Backoff, attempt: int, jitter: tuple[float, float]) -> None:
    less, more = sorted(jitter)
    assert backoff.wait(attempt, less) <= backoff.wait(attempt, more)


@given(backoff=backoffs())
def test_after_many_failures_the_whole_span_is_used(backoff: Backoff) -> None:
    assert backoff.wait(100, 0.0) == backoff.minimum
    span = backoff.maximum - backoff.minimum
    assert backoff.wait(100, 0.999999) >= backoff.minimum + 0.99999 * span


def test_the_ceiling_doubles() -> None:
    backoff = Backoff(1, 10)
    assert [backoff.wait(attempt, 1.0) for attempt in range(2, 8)] == [1, 2, 4, 8, 10, 10]


def test_a_minimum_of_nothing_grows_too() -> None:
    backoff = Backoff(0, 60)
    assert backoff.wait(2, 0.5) == SOON / 2
    assert backoff.wait(40, 0.5) == 30


def test_without_a_policy_it_is_soon_but_not_at_once() -> None:
    assert {Backoff().wait(attempt, 0.7) for attempt in (2, 3, 50)} == {SOON}


class WaitingMachine(RuleBasedStateMachine):
    """Adds and lets time pass, against a plain list."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting = Waiting()
        self.now = 0.0
        self.next = 0
        self.model: list[tuple[float, int, bytes | None]] = []

    @rule(
        key=st.sampled_from([b"a", b"b", None]),
        attempt=st.integers(2, 9),
        wait=st.sampled_from([0.0, 1.0, 1.0, 7.5]),
    )
    def add(self, key: bytes | None, attempt: int, wait: float) -> None:
        self.waiting.add(FakeBody(offset=self.next, key=key), key, attempt, self.now + wait)
        assert self.waiting.attempts[self.next] == attempt
        self.model.append((self.now + wait, self.next, key))
        self.next += 1

    @rule(seconds=st.sampled_from([0.0, 0.5, 1.0, 8.0]))
    def wait(self, seconds: float) -> None:
        """All that is due comes out, the earliest first, each once; nothing else does."""
        self.now += seconds
        come = [(record.offset(), key) for record, key in self.waiting.due(self.now)]
        assert come == [(offset, key) for due, offset, key in sorted(self.model) if due <= self.now]
        self.model = [entry for entry in self.model if entry[0] > self.now]

    @precondition(lambda self: self.model)
    @rule()
    def sleep_until_woken(self) -> None:
        """Waking at the announced time and not earlier is enough."""
        due = self.waiting.next_due()
        assert due is not None
        self.now = max(self.now, due)
        assert self.waiting.due(self.now)
        self.model = [entry for entry in self.model if entry[0] > self.now]

    @invariant()
    def same_as_the_model(self) -> None:
        assert len(self.waiting) == len(self.model)
        assert self.waiting.next_due() == min((due for due, _, _ in self.model), default=None)
        offsets = sorted(record.offset() for record, _ in self.waiting.records())
        assert offsets == sorted(offset for _, offset, _ in self.model)
        assert set(offsets) <= self.waiting.attempts.keys()


TestWaiting = WaitingMachine.TestCase
