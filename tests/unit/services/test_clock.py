"""A service's clock goes on evenly: drift is followed slowly, a step is told and not followed."""

from __future__ import annotations

import pytest

from kafka_pubsub.services.clock import NEAR, ServiceClock


class Clocks:
    """A steady clock, and a wall clock that can be set."""

    def __init__(self) -> None:
        self.steady, self.ahead = 100.0, 1_700_000_000.0

    def wall(self) -> float:
        return self.steady + self.ahead


@pytest.fixture
def clocks() -> Clocks:
    return Clocks()


@pytest.fixture
def clock(clocks: Clocks) -> ServiceClock:
    return ServiceClock(clocks.wall, lambda: clocks.steady)


def test_it_is_set_by_the_wall_clock_and_counts_milliseconds(clocks: Clocks, clock: ServiceClock) -> None:
    assert clock.now() == 1_700_000_100_000
    clocks.steady += 0.25
    assert clock.now() == 1_700_000_100_250


@pytest.mark.parametrize("drift", [0.3, -0.3])
def test_drift_is_followed_slowly_and_time_never_goes_back(
    clocks: Clocks, clock: ServiceClock, drift: float
) -> None:
    clocks.ahead += drift
    last, began = clock.now(), clock.now()
    for _ in range(4000):
        clocks.steady += 0.5
        assert last < clock.now() <= last + 502
        last = clock.now()
    assert clock.apart == 0
    assert abs(last - began - 2_000_000 - drift * 1000) < 3


@pytest.mark.parametrize("hours", [1, -1])
def test_a_step_is_told_and_not_followed(
    clocks: Clocks, clock: ServiceClock, hours: int, caplog: pytest.LogCaptureFixture
) -> None:
    clocks.ahead += hours * 3600
    for _ in range(100):
        clocks.steady += 1
        clock.now()
    assert clock.now() == 1_700_000_200_000
    assert clock.apart == pytest.approx(hours * 3600)
    assert len(caplog.records) == 2, "once a minute"
    assert ("ahead" if hours > 0 else "behind") in caplog.text
    clocks.ahead -= hours * 3600 - NEAR / 2
    clocks.steady += 1
    clock.now()
    assert clock.apart == 0
