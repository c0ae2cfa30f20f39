"""The watch for hot keys, against exact counts of the same messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from kafka_pubsub.log.records import Record
from kafka_pubsub.subscribe.takeover.hot_keys import (
    COUNTERS,
    MEAN_GAP,
    MOST,
    REMEMBERED,
    WINDOW,
    HotKey,
    HotKeys,
)
from tests.support import FakeBody

KEYS = st.one_of(st.none(), st.integers(0, 30).map(lambda number: b"k%d" % number), st.just(b"hot"))


def records(keys: Sequence[bytes | None]) -> list[Record]:
    return [FakeBody(offset=offset, key=key) for offset, key in enumerate(keys)]


def watched(watch: HotKeys, keys: Sequence[bytes | None], batch: int = 500) -> list[HotKey]:
    """The reports when the messages come in batches."""
    rows = records(keys)
    found = [watch.observe(rows[start : start + batch]) for start in range(0, len(rows), batch)]
    watch.check()
    return [each for each in found if each is not None]


@given(st.lists(KEYS, min_size=40, max_size=40))
def test_a_key_is_reported_only_if_it_carries_most_and_surely_if_it_carries_a_tenth_more(
    keys: list[bytes | None],
) -> None:
    # A mean gap of 1 looks at every message; the first window is a single report.
    watch = HotKeys(window=20, mean_gap=1)
    sampled: list[bytes | None] = []
    found = None
    for each in keys:
        before = watch._samples
        found = watch.observe(records([each])) or found
        if watch._samples != before:
            sampled.append(each)
        if len(sampled) == 20:
            break
        watch.check()
    counts = Counter(sampled)
    del counts[None]
    hottest = counts.most_common(1)[0] if counts else (b"", 0)
    if found is not None:
        assert counts[found.key] > MOST * 20
        assert found.share <= counts[found.key] / 20
    elif len(sampled) == 20:
        assert hottest[1] <= MOST * 20 + 20 / (COUNTERS + 1)


def test_a_key_that_carries_three_quarters_is_reported_once_with_its_share() -> None:
    keys = [b"hot" if number % 4 else b"cold%d" % number for number in range(WINDOW * MEAN_GAP * 4)]
    (found,) = watched(HotKeys(), keys)
    assert found.key == b"hot"
    assert 0.6 < found.share < 0.85


def test_keys_that_take_turns_are_not_hot_whatever_their_number() -> None:
    for count in (2, 61, 64, 67, 96, 128):
        keys = [b"user%d" % (number % count) for number in range(WINDOW * MEAN_GAP * 3)]
        assert watched(HotKeys(), keys) == [], count


def test_messages_without_a_key_are_no_key() -> None:
    assert watched(HotKeys(), [None] * WINDOW * MEAN_GAP * 3) == []


def test_a_rare_key_among_messages_without_a_key_is_not_hot() -> None:
    keys = [b"rare" if number % 3 == 0 else None for number in range(WINDOW * MEAN_GAP * 4)]
    assert watched(HotKeys(), keys) == []


def test_keys_that_are_hot_in_turn_stop_being_reported_some_day() -> None:
    watch = HotKeys(window=8, mean_gap=1)
    reported = [each for number in range(100) for each in watched(watch, [b"hot%d" % number] * 100)]
    assert len({each.key for each in reported}) == len(reported) == REMEMBERED
