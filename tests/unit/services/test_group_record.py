"""A service warns before its group reads too many topics for the broker to keep."""

from __future__ import annotations

import logging

import pytest

from kafka_pubsub.delays.layout import DelayLayout
from kafka_pubsub.services.group_record import GroupRecord, members_that_fit


def topics(count: int) -> list[str]:
    """Names of 26 bytes: with their lengths 28."""
    return [f"{number:020}.inbox" for number in range(count)]


def test_the_members_that_fit_are_those_of_the_brokers_limit() -> None:
    """10,000 topics of 28 bytes: a broker took two members of 280 kB, and refused the third."""
    assert members_that_fit(topics(10_000)) == 2
    assert members_that_fit(topics(40_000)) == 0
    assert members_that_fit(DelayLayout().topics) > 500


def test_a_warning_names_what_fits_once_and_again_when_less_does(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "kafka_pubsub.service")
    record = GroupRecord("sequencer")
    said = []
    for count in (100, 7_000, 10_000, 10_001, 15_000):
        record.look(topics(count))
        said.append(len(caplog.records))
    assert said == [0, 0, 1, 1, 2]
    assert (
        "sequencer: with the names of its 10000 topics a broker can keep a group of 2 members" in caplog.text
    )
    assert "15000 topics a broker can keep a group of 1 members" in caplog.text
