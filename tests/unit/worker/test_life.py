"""The state of a unit: RUNNING only when it works, pauses that grow, and an end of the restarts if one is set."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kafka_pubsub.worker.life import LONGEST_PAUSE, PAUSE, STEADY, Life, UnitState

Step = tuple[str, float]
STEPS = st.lists(st.tuples(st.sampled_from(["works", "waits", "fails"]), st.floats(0, 100)), max_size=30)


def test_a_unit_runs_when_it_works() -> None:
    life = Life().looked(False, "no member yet", 1)
    assert (life.state, life.error) == (UnitState.STARTING, "no member yet")
    life = life.looked(True, "", 2)
    assert (life.state, life.error, life.works_since) == (UnitState.RUNNING, "", 2)
    assert life.looked(True, "", 3).works_since == 2
    life = life.looked(False, "the broker is away", 4)
    assert (life.state, life.error, life.works_since) == (UnitState.STARTING, "the broker is away", None)


def test_its_trace_stays_until_it_works_again() -> None:
    life = Life().failed("no", "Trace ...", 1)
    assert (life.state, life.restart_at) == (UnitState.FAILED, 1 + PAUSE)
    life = life.restarted().looked(False, "", 3)
    assert (life.state, life.error, life.trace, life.restarts) == (UnitState.RESTARTING, "no", "Trace ...", 1)
    life = life.looked(True, "", 4)
    assert (life.state, life.error, life.trace) == (UnitState.RUNNING, "", "")


def test_a_stopped_unit_waits_for_nothing() -> None:
    assert Life().failed("no", "", 1).stopped() == Life(UnitState.STOPPED, error="no", failures=1)


def test_a_unit_that_worked_for_long_begins_anew() -> None:
    life = Life().failed("no", "", 0).failed("no", "", 0).restarted().looked(True, "", 10)
    assert life.failed("no", "", 10 + STEADY - 1).failures == 3
    assert life.failed("no", "", 10 + STEADY).failures == 1
    assert life.looked(True, "", 10 + STEADY).failures == 0


@given(STEPS, st.none() | st.integers(0, 5))
def test_pauses_grow_to_the_longest_and_end_with_the_last_restart(
    steps: list[Step], most: int | None
) -> None:
    life, now, pause, row = Life(max_restarts=most), 0.0, 0.0, 0
    for step, seconds in steps:
        now += seconds
        if step == "fails":
            row = (
                1 if life.works_since is not None and now - life.works_since >= STEADY else life.failures + 1
            )
            life = life.failed("no", "trace", now)
            assert life.failures == row
            if most is not None and row > most:
                assert life.restart_at is None
                return
            assert life.restart_at is not None
            pause, before = life.restart_at - now, pause
            assert PAUSE - 1e-6 <= pause <= LONGEST_PAUSE + 1e-6
            assert row == 1 or pause >= before - 1e-6
            life = life.restarted()
        else:
            life = life.looked(step == "works", "", now)
            pause = pause if life.failures else 0.0
        assert (life.state is UnitState.RUNNING) == (step == "works")
        assert (life.works_since is None) == (step != "works")
