"""When a message comes again: the bounds of the backoff."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kafka_pubsub.subscribe.partition.settings import SOON, Backoff

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
