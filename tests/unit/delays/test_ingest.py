"""When a message comes in, and which requests count; `tests/property/test_delays.py` has any order of them."""

from __future__ import annotations

from typing import cast

from kafka_pubsub.delays.ingest import KEEP, Ingest
from kafka_pubsub.delays.values import Came, Tick
from kafka_pubsub.model import StoredRecord

UNIT, TIERS = 1000, 4
BODY = cast("StoredRecord", b"body")


def ingest(*, time: int = 5000, keep: int = KEEP) -> Ingest:
    return Ingest(0, time, UNIT, TIERS, keep)


def came(offset: int, stamp: int | None, delay: int = 2500) -> Came:
    return Came(offset, "orders", None, delay, BODY, stamp=stamp)


def test_a_delay_counts_from_the_time_of_the_log_which_never_goes_back() -> None:
    log = ingest()
    log.receive([came(0, 6000), came(1, 4000)])
    assert [(each.at, each.due, each.left) for each in log.arrived] == [(6000, 8500, 2)] * 2
    assert (log.time, log.stamp) == (6000, 4000)
    log.check()


def test_a_time_that_has_passed_is_now() -> None:
    log = ingest()
    log.receive([Came(0, "orders", 1, None, BODY, stamp=6000)])
    assert log.arrived[0][:4] == (6000, 0, 6000, 0)


def test_a_request_is_in_memory_before_its_message_is_due_and_a_late_one_is_left_out() -> None:
    log = ingest()
    log.receive([Came(number, "", due, None, BODY, 7, 6000) for number, due in enumerate((8000, 6000))])
    assert [(each.due, each.left, each.target) for each in log.arrived] == [(8000, 1, 7)]
    assert (log.read, log.position) == (2, 0)


def test_messages_without_a_stamp_come_in_with_the_next_record_that_has_one() -> None:
    log = ingest()
    log.receive([came(0, None), came(1, None)])
    assert (log.undated, len(log.arrived), log.position) == (True, 0, 0)
    log.receive([Tick(2, 7000)])
    assert [each.at for each in log.arrived] == [7000] * 2
    assert not log.undated


def test_more_of_them_than_are_kept_are_read_once_more() -> None:
    log = ingest(keep=1)
    log.receive([came(0, None), came(1, None), Tick(2, 7000)])
    assert (log.seek, len(log.arrived)) == (0, 0)
    log.sought()
    log.receive([came(0, None), came(1, None), Tick(2, 7000)])
    assert [each.at for each in log.arrived] == [7000] * 2


def test_a_message_longer_than_all_tiers_is_noted_and_one_far_beyond_goes_nowhere() -> None:
    log = ingest()
    log.receive([came(0, 6000, 16 * UNIT), came(1, 6000, 1000 * UNIT)])
    assert log.longer
    assert [(each.home, each.left) for each in log.arrived] == [("orders", 15), (None, 0)]
