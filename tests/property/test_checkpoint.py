"""A checkpoint comes back from its records unchanged, and a part of a checkpoint tells nothing."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kafka_pubsub.model import Run
from kafka_pubsub.subscribe.formats.checkpoint import Checkpoint, Log, Part, joined, news, split, united
from kafka_pubsub.subscribe.formats.notes import Notes, as_runs
from kafka_pubsub.subscribe.retry_topic import checkpoint_records as checkpoints

numbers = st.one_of(st.integers(1, 40), st.integers(1, 2**15), st.integers(1, 2**40))
pairs = st.lists(st.tuples(numbers, numbers), max_size=30)


@st.composite
def logs(draw: st.DrawFn) -> Log:
    position = draw(st.integers(0, 2**40))
    runs, at = [], position
    for gap, length in draw(pairs):
        runs.append((at + gap, at + gap + length))
        at += gap + length
    started = [position + above for above in draw(st.lists(st.integers(0, 500), max_size=9))]
    notes = Notes(as_runs(started), draw(st.sampled_from([None, *started])))
    epoch = draw(st.none() | st.integers(0, 2**31 - 1))
    return Log(draw(st.text(max_size=30)), position, tuple(runs), draw(st.integers(0, 2**62)), epoch, notes)


made = st.builds(
    Checkpoint, st.integers(0, 2**60), st.integers(0, 2**60 - 1), st.integers(0, 2**42), logs(), logs()
)


@given(made, st.integers(1, 9), st.randoms())
def test_a_checkpoint_comes_back_from_its_records_in_any_order(
    checkpoint: Checkpoint, most: int, random: object
) -> None:
    parts = split(checkpoint, most)
    assert all(len(part.checkpoint.main.runs) + len(part.checkpoint.retry.runs) <= most for part in parts)
    read = [checkpoints.decode(checkpoints.encode(part)) for part in parts]
    assert read == parts
    random.shuffle(read)  # type: ignore[attr-defined]
    assert joined(part for part in read if part is not None) == checkpoint


@given(made, made, st.integers(1, 4), st.data())
def test_with_a_record_that_is_missing_doubled_or_anothers_it_reports_nothing(
    checkpoint: Checkpoint, other: Checkpoint, most: int, data: st.DataObject
) -> None:
    parts = split(checkpoint, most)
    at = data.draw(st.integers(0, len(parts) - 1))
    assert joined([*parts[:at], *parts[at + 1 :]]) is None
    assert joined([*parts, parts[at]]) is None
    theirs = split(other, most)
    if len(parts) > 1 and at < len(theirs) and theirs[at] != parts[at]:
        assert joined([*parts[:at], theirs[at], *parts[at + 1 :]]) is None
    changed = parts[at]._replace(checkpoint=parts[at].checkpoint._replace(time=2**43))
    assert joined([changed, *parts[:at], *parts[at + 1 :]]) is None


@given(made, st.data())
def test_a_damaged_record_is_not_taken_for_the_checkpoint(
    checkpoint: Checkpoint, data: st.DataObject
) -> None:
    value = bytearray(checkpoints.encode(split(checkpoint, 100)[0]))
    at = data.draw(st.integers(0, len(value) - 1))
    value[at] ^= data.draw(st.integers(1, 255))
    found = checkpoints.decode(bytes(value))
    assert found is None or joined([found]) != checkpoint
    assert checkpoints.decode(bytes(value[:-1])) != split(checkpoint, 100)[0]


@given(st.binary(max_size=80))
def test_rubbish_is_no_record(value: bytes) -> None:
    found = checkpoints.decode(value)
    assert found is None or joined([found]) is None
    assert checkpoints.decode(None) is None


finished = st.sets(st.integers(1, 60))


def offsets(runs: list[Run]) -> set[int]:
    return {offset for start, end in runs for offset in range(start, end)}


@given(finished, finished, st.integers(0, 30))
def test_what_is_new_and_what_was_reported_are_all_that_is_finished(
    before: set[int], since: set[int], position: int
) -> None:
    told = as_runs(before)
    now = [run for run in as_runs(before | since) if run[1] > position]
    fresh = news(now, frozenset(told))
    assert len(fresh) <= len(since), "each run that is told anew holds something that finished since"
    whole = united(fresh, told, position)
    assert offsets(whole) == {offset for offset in before | since if offset >= position} | offsets(
        [(max(start, position), end) for start, end in now]
    )
    assert whole == sorted(whole)


def test_what_is_reported_already_needs_no_room() -> None:
    assert news([(1, 2), (4, 9)], {(1, 2), (4, 9)}) == []
    assert news([(1, 2), (4, 10)], {(1, 2), (4, 9)}) == [(4, 10)]


def test_a_part_of_a_small_checkpoint_is_all_of_it() -> None:
    log = Log("id", 3, ((5, 7),))
    (part,) = split(Checkpoint(1, 2, 3, log, log))
    assert part == Part(Checkpoint(1, 2, 3, log, log), 0, 1, part.checksum)
