"""Levels of loggers, in Kafka Connect's words."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from kafka_pubsub.worker.loggers import change_logger, list_loggers, show_logger


@pytest.fixture(autouse=True)
def family() -> Iterator[None]:
    loggers = [logging.getLogger("of_a_test"), logging.getLogger("of_a_test.child")]
    yield
    for each in loggers:
        each.setLevel(logging.NOTSET)


def test_a_level_is_set_with_those_below_it() -> None:
    assert show_logger("no.such.logger") is None
    assert change_logger("of_a_test", "LOUD") is None
    assert change_logger("of_a_test", "warn") == ["of_a_test", "of_a_test.child"]
    shown = show_logger("of_a_test.child")
    assert shown is not None
    assert shown["level"] == "WARN"
    assert shown["last_modified"] > 0
    assert list_loggers()["of_a_test"]["level"] == "WARN"
    assert not logging.getLogger("of_a_test.child").isEnabledFor(logging.INFO)
    change_logger("of_a_test", "OFF")
    assert not logging.getLogger("of_a_test").isEnabledFor(logging.CRITICAL)
    assert list_loggers()["of_a_test"]["level"] == "OFF"


def test_the_root_is_shown_and_has_not_been_changed() -> None:
    assert list_loggers()["root"]["last_modified"] is None
    assert show_logger("root") is not None
