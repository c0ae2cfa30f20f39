"""The judge of delayed messages notices each fault."""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path

import pytest

from kafka_pubsub.delays.layout import INGEST
from tests.faults import delayed
from tests.faults.delayed import ENDING, AtHome, Diary, Published, judge

#: Stored at second 1; the first is due after the second.
ONE = Published("s1", "k", 9.0, "in:0:5", 1.0)
TWO = Published("s2", "k", 5.0, "in:0:6", 1.0)


def home(message: Published, offset: int, time: float | None = None) -> AtHome:
    return AtHome(
        ("t", 0), offset, message.due if time is None else time, "k", message.message_id, message.sha
    )


def found(*homes: AtHome, sent: tuple[Published, ...] = (ONE, TWO)) -> list[str]:
    return [problem.partition(":")[0] for problem in judge(sent, {"s9"}, homes)]


def test_messages_in_the_order_of_their_due_times_are_well() -> None:
    assert found(home(TWO, 0), home(ONE, 1)) == []


@pytest.mark.parametrize(
    ("homes", "problem"),
    [
        ([home(TWO, 0)], "lost"),
        ([home(TWO, 0), home(TWO, 1), home(ONE, 2)], "doubled"),
        ([home(TWO, 0), home(ONE, 1), home(ONE._replace(message_id="in:0:7", sha="s3"), 2)], "unknown"),
        ([home(TWO, 0), home(ONE._replace(message_id="in:0:7"), 1)], "renamed"),
        ([home(TWO, 0, 4.9), home(ONE, 1)], "early"),
        ([home(ONE, 0), home(TWO, 1)], "disordered"),
    ],
)
def test_a_home_that_is_wrong_is_noticed(homes: list[AtHome], problem: str) -> None:
    assert found(*homes) == [problem]


def test_a_message_without_an_answer_may_be_at_home() -> None:
    perhaps = home(ONE._replace(message_id="in:0:7", sha="s9"), 2)
    assert found(home(TWO, 0), home(ONE, 1), perhaps) == []


def test_a_message_of_which_no_broker_said_where_it_came_in_is_known_by_its_fingerprint() -> None:
    two = TWO._replace(message_id="in:0:unknown")
    assert found(home(TWO, 0), home(ONE, 1), sent=(ONE, two)) == []
    assert found(home(ONE, 0), home(TWO, 1), sent=(ONE, two)) == ["disordered"]
    assert found(home(ONE, 0), sent=(ONE, two)) == ["lost"]


def test_of_equal_due_times_the_one_that_came_in_first_comes_first() -> None:
    two = TWO._replace(due=ONE.due)
    assert found(home(two, 0), home(ONE, 1), sent=(ONE, two)) == ["disordered"]
    assert found(home(ONE, 0), home(two, 1), sent=(ONE, two)) == []


def test_a_message_that_was_perhaps_stored_too_late_to_be_first_may_come_second() -> None:
    two = TWO._replace(stored=10.0)
    assert found(home(ONE, 0), home(two, 1), sent=(ONE, two)) == []


def test_a_diary_tells_what_is_stored_and_what_may_be(tmp_path: Path) -> None:
    diary = Diary(tmp_path / f"p{ENDING}")
    for sha in ("s1", "s2", "s3"):
        diary.sending(sha)
    stored: Future[str] = Future()
    stored.set_result(f"{INGEST}:0:5")
    straight_home: Future[str] = Future()
    straight_home.set_result("t:0:5")
    failed: Future[str] = Future()
    failed.set_exception(ValueError())
    diary.answered("s1", "k", 9.0, stored)
    diary.answered("s2", "k", 9.0, failed)
    diary.answered("s3", "k", 9.0, straight_home)
    (message,) = delayed.published(tmp_path)
    assert message[:4] == ONE._replace(message_id=f"{INGEST}:0:5")[:4]
    assert delayed.unsure(tmp_path) == {"s2"}
