"""The judge of multicasts notices each fault."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.faults.multicast_history import Delivered, History, Place, Published, judge

AT_A, AT_B = ((1, "a", 0), (2, "b", 0))


def judged(
    homes: dict[str, Sequence[tuple[str, Place]]], after: Sequence[str] = (), second_at: float = 3
) -> list[str]:
    """Judges two messages to two topics; the future of the first resolved at second 2, that of the other at 5."""
    history = History(
        {
            "one": Published(1, "p", 1, ["a", "b"], []),
            "two": Published(second_at, "q", 1, ["a", "b"], after),
        },
        {"one": 2, "two": 5},
        {"one": AT_A, "two": AT_B},
    )
    return judge(history, {name: [Delivered(*each) for each in home] for name, home in homes.items()})


RIGHT = [("one", AT_A), ("two", AT_B)]


def test_the_judge_finds_nothing_where_all_is_well() -> None:
    assert judged({"a": RIGHT, "b": RIGHT}, after=["one"]) == []


@pytest.mark.parametrize(
    ("home", "problem"),
    [
        (RIGHT[:1], "two isn't at all its topics"),
        ([*RIGHT, RIGHT[1]], "twice"),
        ([*RIGHT, ("three", (3, "a", 0))], "three wasn't published to it"),
        ([("one", AT_A), ("two", (3, "b", 0))], "two has two timestamps"),
        (RIGHT[::-1], "comes behind two at"),
        (RIGHT[::-1], "two was published when one was sent, and comes before it"),
    ],
)
def test_the_judge_notices_a_home_that_is_wrong(home: list[tuple[str, Place]], problem: str) -> None:
    assert problem in "\n".join(judged({"a": RIGHT, "b": home}))


def test_the_judge_notices_an_effect_before_the_cause_of_which_it_was_told() -> None:
    home = [("two", (1, "a", 0)), ("one", (2, "b", 0))]
    found = judged({"a": home, "b": home}, after=["one"], second_at=1.5)
    assert "b: two comes before its cause one" in found


def test_the_judge_notices_that_a_sender_overtook_itself() -> None:
    history = History(
        {"one": Published(1, "p", 1, ["a"], []), "two": Published(1, "p", 2, ["a"], [])},
        {},
        {},
    )
    home = [Delivered("two", AT_A), Delivered("one", AT_B)]
    assert judge(history, {"a": home}) == ["a: one comes behind what its sender published later, or twice"]
