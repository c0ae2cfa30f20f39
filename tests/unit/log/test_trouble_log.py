"""How often a stream or a service says that something isn't done yet."""

from __future__ import annotations

import logging
import pickle

import pytest

from kafka_pubsub.errors import BrokerUnavailable, PermissionDenied, PubSubError
from kafka_pubsub.log.trouble_log import EVERY, LASTING, TroubleLog

LOG = logging.getLogger("kafka_pubsub.test_trouble_log")


def levels(error: PubSubError, caplog: pytest.LogCaptureFixture, seconds: int) -> dict[int, str]:
    """Returns what is logged above DEBUG when the error comes every second."""
    caplog.set_level(logging.INFO, LOG.name)
    now = 0
    troubles = TroubleLog(LOG, lambda: now)
    found = {}
    for now in range(seconds):
        caplog.clear()
        troubles.tell(error, "%s: %s; trying again", "billing", error)
        if caplog.records:
            found[now] = caplog.records[0].levelname
    return found


def test_what_passes_is_a_warning_once_it_has_lasted(caplog: pytest.LogCaptureFixture) -> None:
    found = levels(BrokerUnavailable("an election"), caplog, 100)
    assert found == {0: "INFO", LASTING: "WARNING", LASTING + EVERY: "WARNING"}


def test_what_needs_a_person_is_a_warning_at_once(caplog: pytest.LogCaptureFixture) -> None:
    assert levels(PermissionDenied("no"), caplog, 100) == {0: "WARNING", EVERY: "WARNING"}


def test_an_outage_is_told_elsewhere(caplog: pytest.LogCaptureFixture) -> None:
    error = BrokerUnavailable("no broker answers")
    error.outage = True
    assert levels(error, caplog, 100) == {0: "INFO"}
    assert pickle.loads(pickle.dumps(error)).outage
