"""Which messages a measurement counts, and that nothing is left behind."""

from __future__ import annotations

import pytest

from kafka_pubsub.cli import measuring
from kafka_pubsub.errors import PubSubError
from tests.unit.cli.conftest import CommandLine
from tests.unit.cli.test_bench import SMALL, rows


def test_latency_counts_the_messages_after_the_warm_up(
    run: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measuring, "_WARM_UP_S", 0.1)
    (row,) = rows(run, "latency", "--rate", "100", "--seconds", "1")
    assert row["messages"] == 100
    assert 0 < row["p50_ms"] <= row["p99_ms"] <= row["max_ms"]


@pytest.mark.parametrize("command", ["publish", "pull"])
def test_nothing_is_left_behind(run: CommandLine, command: str) -> None:
    rows(run, command, *SMALL)
    assert run.pubsub.list_topics() == []
    assert run.pubsub.list_subscriptions() == []


def test_nothing_is_left_behind_when_it_fails(run: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise PubSubError("the brokers are gone")

    monkeypatch.setattr(measuring, "_publish", fail)
    assert run.error("bench", "pull", *SMALL)["exit_code"] == 1
    assert run.pubsub.list_topics() == []
    assert run.pubsub.list_subscriptions() == []


def test_silence_is_an_error(run: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "_SILENCE_S", 0.05)
    monkeypatch.setattr(measuring, "_publish", lambda *_: None)
    assert "nothing was delivered for 0.05 s" in str(run.error("bench", "pull", *SMALL)["message"])
