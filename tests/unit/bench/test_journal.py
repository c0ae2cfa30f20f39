"""The check of the killed consumers: a clean diary passes, and each planted anomaly is found."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.benchmarks.harness import ROOT
from tests.benchmarks.journal import ACK, START, Diary, Findings, Life, Record, check, read, written

LAG_S = 0.2
MS = 1_000_000
SECOND = 1000 * MS


def start(key: int, place: int, at: int = 0) -> Record:
    return Record(START, key, place, at)


def ack(key: int, place: int, at: int = 0) -> Record:
    return Record(ACK, key, place, at)


def handled(key: int, places: Sequence[int], at: int = 0) -> list[Record]:
    return [record for place in places for record in (start(key, place, at), ack(key, place, at))]


def checked(lives: Sequence[Life], **published: int) -> Findings:
    return check(lives, {int(key[1:]): count for key, count in published.items()}, LAG_S)


def violations(found: Findings) -> dict[str, int]:
    counts = {
        "lost": found.lost,
        "disordered": found.disordered,
        "excess": found.excess,
        "stale": found.stale,
    }
    return {name: count for name, count in counts.items() if count}


def test_a_life_without_a_kill_is_clean() -> None:
    found = checked([Life(handled(1, range(5)) + handled(2, range(3)), None)], k1=5, k2=3)
    assert violations(found) == {}
    assert (found.kills, found.deliveries, found.redeliveries) == (0, 8, 0)


def test_keys_may_interleave() -> None:
    records = [start(1, 0), start(2, 0), ack(2, 0), start(2, 1), ack(1, 0), ack(2, 1)]
    assert violations(checked([Life(records, None)], k1=1, k2=2)) == {}


def test_what_was_in_flight_and_freshly_acked_comes_back() -> None:
    killed = 10 * SECOND
    first = [*handled(1, range(3), at=SECOND), *handled(1, [3], at=killed - 100 * MS), start(1, 4, at=killed)]
    found = checked([Life(first, killed), Life(handled(1, [3, 4, 5]), None)], k1=6)
    assert violations(found) == {}
    assert (found.kills, found.redeliveries) == (1, 2)


def test_an_ack_noted_after_the_parent_took_the_time_counts_as_fresh() -> None:
    first = handled(1, [0], at=SECOND + 3 * MS)
    assert violations(checked([Life(first, SECOND), Life(handled(1, [0]), None)], k1=1)) == {}


def test_a_message_in_flight_that_never_comes_back_is_lost() -> None:
    first = [*handled(1, [0]), start(1, 1)]
    found = checked([Life(first, SECOND), Life(handled(1, [2, 3]), None)], k1=4)
    assert violations(found) == {"lost": 1}
    assert "key 1 begins at 2, 1 was never acked" in found.examples[0]


def test_messages_that_were_never_delivered_are_lost() -> None:
    first = handled(1, [0])
    assert violations(checked([Life(first, SECOND), Life(handled(1, [4]), None)], k1=5)) == {"lost": 3}


def test_a_missing_end_is_lost() -> None:
    assert violations(checked([Life(handled(1, range(3)), None)], k1=5)) == {"lost": 2}


def test_a_key_that_never_appeared_is_lost() -> None:
    assert violations(checked([Life(handled(1, range(3)), None)], k1=3, k2=4)) == {"lost": 4}


def test_a_delivery_without_an_ack_at_the_end_is_lost() -> None:
    assert violations(checked([Life([*handled(1, [0]), start(1, 1)], None)], k1=2)) == {"lost": 1}


def test_more_than_was_published_is_no_clean_result() -> None:
    assert violations(checked([Life(handled(1, range(3)), None)], k1=2)) == {"lost": 1}


@pytest.mark.parametrize("places", [[0, 2, 1, 3], [0, 1, 1, 2], [0, 1, 3, 2]])
def test_disorder_within_a_life(places: list[int]) -> None:
    assert checked([Life(handled(1, places), None)], k1=4).disordered > 0


def test_a_gap_within_a_life() -> None:
    found = checked([Life(handled(1, [0, 1, 3]), None)], k1=4)
    assert found.disordered == 1
    assert "key 1 has 3 after 1" in found.examples[0]


def test_a_second_message_of_a_key_while_the_first_is_in_flight() -> None:
    records = [start(1, 0), start(1, 1), ack(1, 0), ack(1, 1)]
    assert checked([Life(records, None)], k1=2).disordered > 0


def test_the_same_while_a_redelivery_is_in_flight() -> None:
    # The first life's acks must not pass for the second one's.
    killed = SECOND
    again = [start(1, 0), start(1, 1), ack(1, 0), ack(1, 1)]
    lives = [Life(handled(1, [0, 1], at=killed), killed), Life(again, None)]
    assert checked(lives, k1=2).disordered > 0


def test_an_ack_without_its_delivery() -> None:
    assert checked([Life([*handled(1, [0]), ack(1, 1)], None)], k1=2).disordered == 1


def test_too_many_redeliveries() -> None:
    killed = 10 * SECOND
    # Acked a second before the kill: its commit was due long ago.
    first = handled(1, [0, 1, 2], at=killed - SECOND)
    found = checked([Life(first, killed), Life(handled(1, [0, 1, 2, 3]), None)], k1=4)
    assert violations(found) == {"excess": 3, "stale": 3}
    assert "3 redeliveries, at most 0 were due" in found.examples[0]


def test_an_old_redelivery_within_the_bound_is_counted_apart() -> None:
    killed = 10 * SECOND
    first = [*handled(1, [0], at=killed - SECOND), *handled(2, [0, 1], at=killed)]
    found = checked([Life(first, killed), Life(handled(1, [0]), None)], k1=1, k2=2)
    assert violations(found) == {"stale": 1}


def test_what_one_kill_allowed_is_not_allowed_again_after_the_next() -> None:
    kills = [10 * SECOND, 20 * SECOND, 30 * SECOND]
    lives = [
        Life(handled(1, range(10), at=kills[0]), kills[0]),
        # Began behind all ten, so their acks had been stored: they are settled.
        Life(handled(1, [10], at=kills[1] - SECOND), kills[1]),
        Life(handled(1, range(10)), None),
    ]
    found = checked(lives, k1=11)
    assert (found.excess, found.stale) == (10, 10)


def test_what_the_next_process_did_not_get_to_remains_allowed() -> None:
    kills = [10 * SECOND, 20 * SECOND]
    lives = [
        Life([start(1, 0, at=kills[0]), start(2, 0, at=kills[0])], kills[0]),
        Life(handled(1, [0], at=kills[1]), kills[1]),
        Life(handled(1, [0, 1]) + handled(2, [0]), None),
    ]
    assert violations(checked(lives, k1=2, k2=1)) == {}


def test_a_diary_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "diary"
    records = [start(7, 0, at=1), ack(7, 0, at=2**63), start(2**32 - 1, 2**32 - 1, at=3)]
    diary = Diary(path, records=10)
    for record in records:
        diary.note(*record)
    assert list(read(path)) == records
    assert written(path) == 3


def test_nothing_is_written_before_the_process_has_begun(tmp_path: Path) -> None:
    assert written(tmp_path / "none") == 0
    (tmp_path / "empty").touch()
    assert written(tmp_path / "empty") == 0
    Diary(tmp_path / "new", records=10)
    assert (written(tmp_path / "new"), list(read(tmp_path / "new"))) == (0, [])


def test_a_slot_without_its_kind_was_never_written_and_hides_none_behind_it(tmp_path: Path) -> None:
    path = tmp_path / "diary"
    diary = Diary(path, records=10)
    diary.note(*start(1, 0))
    # As a thread that was killed while it stored leaves the slot: everything but the kind, which comes last.
    diary.note(0, 2, 0, 5)
    diary.note(*ack(1, 0))
    assert list(read(path)) == [start(1, 0), ack(1, 0)]


def test_a_kill_loses_no_record(tmp_path: Path) -> None:
    path = tmp_path / "diary"
    program = (
        "import os, signal, sys; from pathlib import Path; from tests.benchmarks.journal import Diary\n"
        "diary = Diary(Path(sys.argv[1]), 5000)\n"
        "for place in range(5000): diary.note(1, 7, place, place)\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    killed = subprocess.run([sys.executable, "-c", program, str(path)], cwd=ROOT, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert list(read(path)) == [start(7, place, at=place) for place in range(5000)]
