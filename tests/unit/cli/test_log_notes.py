"""Commands that wait say why: the warnings of a missing service and of an outage reach a person."""

from __future__ import annotations

import logging

import pytest

from kafka_pubsub.cli.log_notes import OUTAGES, PUBLISHING, noted
from kafka_pubsub.cli.output import Output
from kafka_pubsub.cli.publishing import Publishing
from tests.unit.cli.conftest import CommandLine


def test_warnings_are_notes_while_the_block_runs(capsys: pytest.CaptureFixture[str]) -> None:
    log = logging.getLogger(OUTAGES)
    with noted(Output(False), OUTAGES):
        log.warning("no broker answers at %s", "kafka:9092")
        log.info("a broker answers again")
    log.warning("too late")
    assert capsys.readouterr().err == "No broker answers at kafka:9092.\n"


def test_publish_says_that_no_sequencer_runs(run: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    run("topic", "create", "orders")
    send = Publishing.send

    def send_and_warn(self: Publishing, body: bytes, key: str | None, number: int) -> None:
        send(self, body, key, number)
        logging.getLogger(PUBLISHING).warning("no sequencer runs: messages wait")

    monkeypatch.setattr(Publishing, "send", send_and_warn)
    assert "No sequencer runs: messages wait." in run("publish", "orders", "hi").stderr
    assert run("publish", "orders", "hi", "--json").stderr == ""
