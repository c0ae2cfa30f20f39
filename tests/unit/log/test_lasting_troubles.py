"""How loudly a trouble that repeats is told."""

from __future__ import annotations

from kafka_pubsub.log.lasting_troubles import LastingTroubles, Loudness

QUIETLY, AS_WARNING, NOT_AGAIN = Loudness


def test_a_trouble_that_lasts_is_a_warning_and_then_one_a_minute() -> None:
    troubles = LastingTroubles(every=60)
    told = {now: troubles.notice("it", now, lasting=3) for now in range(130)}
    assert {now: each for now, (each, _) in told.items() if each is not NOT_AGAIN} == {
        0: QUIETLY,
        3: AS_WARNING,
        63: AS_WARNING,
        123: AS_WARNING,
    }
    assert [count for _, count in told.values() if count] == [2, 59, 59]


def test_a_trouble_that_passes_is_never_a_warning() -> None:
    troubles = LastingTroubles(every=60)
    assert [troubles.notice("it", now, lasting=3)[0] for now in (0, 1, 2)] == [QUIETLY, NOT_AGAIN, NOT_AGAIN]
    assert [troubles.notice("it", now, lasting=3)[0] for now in (100, 101)] == [QUIETLY, NOT_AGAIN]


def test_what_does_not_pass_by_itself_is_a_warning_at_once() -> None:
    troubles = LastingTroubles(every=60)
    assert [troubles.notice("it", now, lasting=0)[0] for now in (0, 1, 60)] == [
        AS_WARNING,
        NOT_AGAIN,
        AS_WARNING,
    ]
    assert troubles.notice("another", 1, lasting=0)[0] is AS_WARNING


def test_only_so_many_are_remembered() -> None:
    troubles = LastingTroubles(every=60)
    for number in range(2000):
        troubles.notice(number, 0, lasting=3)
    assert troubles.notice(0, 1, lasting=3)[0] is QUIETLY
    assert troubles.notice(1999, 1, lasting=3)[0] is NOT_AGAIN
