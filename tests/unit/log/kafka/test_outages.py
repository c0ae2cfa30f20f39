"""What a process says when no broker answers, and how often."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from kafka_pubsub.errors import BrokerUnavailable, FailedPrecondition
from kafka_pubsub.log.kafka.outages import AFTERMATH, EVERY, GRACE, Outage, outage_of

NOWHERE = BrokerUnavailable("no broker answers at h:1 (connection refused): look there")


class Time:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class User:
    """A `PubSub` whose broker is away until `back`, and which is closed at `closed`."""

    def __init__(self, time: Time, *, back: float, closed: float = float("inf")) -> None:
        self._time, self._back, self._closed = time, time.now + back, time.now + closed
        self.probes = self.freed = 0

    def probe(self) -> User:
        self._check()
        self.probes += 1
        return self

    def answers(self) -> bool:
        self._check()
        return self._time.now >= self._back

    def problem(self) -> BrokerUnavailable:
        return NOWHERE

    def close(self) -> None:
        self.freed += 1

    def _check(self) -> None:
        if self._time.now >= self._closed:
            raise FailedPrecondition("closed")


@pytest.fixture
def time() -> Time:
    return Time()


class Told(logging.Handler):
    """The lines that are logged, with the seconds since the beginning."""

    def __init__(self, time: Time) -> None:
        super().__init__()
        self._time, self._began = time, time.now
        self.lines: list[tuple[float, str, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append((self._time.now - self._began, record.levelname, record.getMessage()))


@pytest.fixture
def told(time: Time, caplog: pytest.LogCaptureFixture) -> Iterator[Told]:
    caplog.set_level(logging.INFO, "kafka_pubsub.kafka")
    told = Told(time)
    logger = logging.getLogger("kafka_pubsub.kafka")
    logger.addHandler(told)
    yield told
    logger.removeHandler(told)


def watch(outage: Outage, *users: User) -> None:
    for user in users:
        outage.add(user)
    outage.watch()


@pytest.fixture
def outage(time: Time) -> Outage:
    return Outage("h:1", clock=time.clock, sleep=time.sleep)


def test_one_warning_and_then_one_a_minute_and_a_line_when_it_is_over(
    time: Time, outage: Outage, told: Told
) -> None:
    watch(outage, User(time, back=130))
    waits = "; publishing and receiving wait for it"
    assert told.lines == [
        (GRACE, "WARNING", f"{NOWHERE.message}{waits}"),
        (GRACE + EVERY, "WARNING", f"{NOWHERE.message}, for 62 s now{waits}"),
        (GRACE + 2 * EVERY, "WARNING", f"{NOWHERE.message}, for 122 s now{waits}"),
        (130, "INFO", "a broker answers again at h:1, after 130 s"),
    ]


def test_a_broker_that_is_back_at_once_was_never_away(time: Time, outage: Outage, told: Told) -> None:
    user = User(time, back=GRACE / 2)
    watch(outage, user)
    assert told.lines == []
    assert (user.probes, user.freed, outage.told, outage.explains) == (1, 1, False, False)


def test_the_seconds_for_which_a_call_waited_in_vain_count(time: Time, outage: Outage, told: Told) -> None:
    user = User(time, back=30)
    outage.add(user)
    outage.watch(silent=GRACE)
    assert [(seconds, level) for seconds, level, _ in told.lines] == [(0, "WARNING"), (30, "INFO")]


def test_lost_connections_are_no_news_until_a_while_after_the_outage(
    time: Time, outage: Outage, told: Told
) -> None:
    explains = [outage.explains]
    watch(outage, User(time, back=30))
    explains.append(outage.explains)
    time.sleep(AFTERMATH)
    explains.append(outage.explains)
    assert explains == [False, True, False]


def test_when_the_one_that_asks_is_closed_another_one_goes_on(time: Time, outage: Outage, told: Told) -> None:
    users = [User(time, back=40, closed=10), User(time, back=40)]
    watch(outage, *users)
    assert [(seconds, level) for seconds, level, _ in told.lines] == [(GRACE, "WARNING"), (40, "INFO")]
    assert [user.freed for user in users] == [user.probes for user in users]


def test_a_watch_ends_with_the_last_that_could_ask(time: Time, outage: Outage, told: Told) -> None:
    watch(outage, User(time, back=1e9, closed=10))
    assert [level for _, level, _ in told.lines] == ["WARNING"]
    assert (outage.told, time.now) == (False, 1010)


def test_all_that_use_an_address_share_what_is_known() -> None:
    first = outage_of("h:1")
    assert outage_of("h:1") is first
    assert outage_of("h:2") is not first
