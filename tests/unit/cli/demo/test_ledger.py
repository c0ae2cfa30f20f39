"""The demo's judge must catch every way in which order can break, and nothing else."""

from __future__ import annotations

from kafka_pubsub.cli.demo.ledger import Ledger


def ledger(published: int = 3) -> Ledger:
    made = Ledger(clock=lambda: 1.0)
    for _ in range(published):
        made.published("k")
    return made


def handle(made: Ledger, sequence: int, attempt: int = 1) -> None:
    assert made.begin("k", sequence, attempt)
    made.ack("k", sequence)


def test_events_in_order_break_nothing() -> None:
    made = ledger()
    for sequence in range(3):
        handle(made, sequence)
    picture = made.picture()
    assert (picture.violations, picture.finished, picture.busy) == (0, 3, frozenset())
    assert made.lost() == {}


def test_a_nacked_event_that_comes_first_breaks_nothing_and_is_remembered() -> None:
    made = ledger()
    made.begin("k", 0, 1)
    made.nack("k")
    assert made.picture().blocked == {"k"}
    handle(made, 0, attempt=2)
    picture = made.picture()
    assert (picture.violations, picture.nacks, picture.redelivered, picture.blocked) == (0, 1, 1, frozenset())
    assert [(each.sequence, each.attempt, each.held_back) for each in picture.comebacks] == [(0, 2, 2)]


def test_a_successor_before_the_nacked_event_is_a_violation() -> None:
    made = ledger()
    made.begin("k", 0, 1)
    made.nack("k")
    made.begin("k", 1, 1)
    assert made.picture().violations == 1
    assert made.violations == ["k #1 was delivered while #0 was nacked and not delivered again"]


def test_a_gap_is_a_violation() -> None:
    made = ledger()
    handle(made, 0)
    made.begin("k", 2, 1)
    assert made.violations == ["k #2 was delivered while #1 was not finished"]


def test_two_events_of_a_key_at_once_are_a_violation() -> None:
    made = ledger()
    made.begin("k", 0, 1)
    made.begin("k", 1, 1)
    assert made.violations == ["k #1 was delivered while another of its key was being handled"]


def test_an_event_that_comes_again_after_its_ack_is_a_repeat_and_no_violation() -> None:
    made = ledger()
    handle(made, 0)
    assert not made.begin("k", 0, 2)
    picture = made.picture()
    assert (picture.repeats, picture.violations, picture.finished) == (1, 0, 1)


def test_what_was_never_finished_is_lost() -> None:
    made = ledger(published=3)
    handle(made, 0)
    assert made.lost() == {"k": 2}


def test_a_delivery_that_overtakes_the_publishers_answer_is_no_loss() -> None:
    made = Ledger()
    handle(made, 0)
    assert made.lost() == {}
    made.published("k")
    assert made.lost() == {}
    assert made.picture().busy == frozenset()


def test_keys_are_judged_apart() -> None:
    made = Ledger()
    assert made.begin("a", 0, 1)
    assert made.begin("b", 0, 1)
    assert made.picture().in_flight == {"a", "b"}
    assert made.picture().violations == 0
