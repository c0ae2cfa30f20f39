"""A router works days after the last one, or after one whose clock was ahead by hours."""

from __future__ import annotations

import random
import time
from datetime import UTC, datetime, timedelta

from kafka_pubsub import PubSub
from kafka_pubsub.memory import MemoryBackend
from kafka_pubsub.services.clock import ServiceClock
from kafka_pubsub.services.delays import DelayRouter
from tests.support import until
from tests.unit.services.test_delay_router import bodies, stored

DAY = 86_400.0
#: Messages, and how many come home in a second at most.
COUNT, RATE = 60, 40


class LaterRouter(DelayRouter):
    """A router that runs seconds later, by its clock."""

    def __init__(self, ps: PubSub, later: float) -> None:
        super().__init__(ps, max_rate=RATE)
        self._clock = ServiceClock(lambda: time.time() + later)


def test_what_is_overdue_for_days_comes_in_due_order_at_a_bounded_rate(
    ps: PubSub, backend: MemoryBackend
) -> None:
    """Two messages have each delay, of a minute to two days: they wait in all tiers."""
    topic = ps.create_topic("orders", partitions=1)
    delays = [60.0 + n // 2 * 5_600 for n in range(COUNT)]
    random.Random(1).shuffle(delays)
    with DelayRouter(ps, tiers=18, partitions=1) as router:
        for number, delay in enumerate(delays):
            topic.publish(b"%02d" % number, ordering_key="k", delay=delay).result(10)
        until(lambda: router.metrics().get("hops", 0) >= COUNT, "all messages in the tiers")
    with LaterRouter(ps, 3 * DAY) as later:
        later.wait_until_running()
        began = time.monotonic()
        until(lambda: len(bodies(backend)) == COUNT)
        took = time.monotonic() - began
    # A tenth of a second's worth may go at once.
    assert took > (COUNT - RATE / 10) / RATE * 0.9
    found = [int(body or b"") for body in bodies(backend)]
    assert found == sorted(range(COUNT), key=lambda number: (delays[number], number))


def test_after_a_router_whose_clock_was_hours_ahead_messages_carry_the_right_time_at_home(
    ps: PubSub, backend: MemoryBackend
) -> None:
    """The time of the log stays ahead; a topic refuses records that carry a time an hour ahead of its broker's."""
    topic = ps.create_topic("orders", partitions=1)
    with LaterRouter(ps, DAY) as ahead:
        topic.publish(b"0", ordering_key="k", delay=1).result(10)
        until(lambda: ahead.metrics().get("home") == 1)
    with DelayRouter(ps):
        due = datetime.now(UTC) + timedelta(hours=5)
        topic.publish(b"1", ordering_key="k", deliver_at=due).result(10)
        until(lambda: len(bodies(backend)) == 2)
    wrong, right = (record.timestamp()[1] / 1000 - time.time() for record in stored(backend, "orders"))
    assert wrong > DAY / 2
    assert abs(right) < DAY / 2
