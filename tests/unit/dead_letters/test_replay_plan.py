"""In which order and in which batches dead letters are replayed."""

from __future__ import annotations

from kafka_pubsub.dead_letters.replay_plan import ReplayPlan


def test_a_plan_keeps_the_rows_order_but_never_turns_a_key_round() -> None:
    plan = ReplayPlan()
    for at, (key, origin) in enumerate([(b"a", 5), (b"b", 9), (None, 0), (b"a", 3), (b"b", 11), (b"a", 7)]):
        plan.add((0, at), key, 0, origin)
    assert (len(plan), plan.keys) == (6, 2)
    assert list(plan.batches(4)) == [[(0, 3), (0, 1), (0, 2), (0, 0)], [(0, 4), (0, 5)]]


def test_an_empty_plan_has_no_batches() -> None:
    assert list(ReplayPlan().batches(4)) == []
