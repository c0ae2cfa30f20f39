"""`kafka-pubsub bench` over an in-memory cluster: what it answers, and that it leaves nothing behind."""

from __future__ import annotations

import pytest

from kafka_pubsub.app import PubSub
from kafka_pubsub.cli import measuring
from kafka_pubsub.errors import PubSubError
from tests.unit.cli.conftest import CommandLine

SMALL = ("--messages", "300", "--size", "100", "--keys", "7", "--partitions", "2")


def rows(run: CommandLine, *arguments: str) -> list[dict[str, float]]:
    answer = run.json("bench", *arguments)
    assert isinstance(answer, list)
    return answer


@pytest.mark.parametrize("command", ["publish", "pull"])
def test_it_reports_messages_and_megabytes_a_second(run: CommandLine, command: str) -> None:
    (row,) = rows(run, command, *SMALL)
    assert row["messages"] == 300
    assert row["megabytes_per_second"] == pytest.approx(row["messages_per_second"] * 100 / 1e6, abs=0.1)


def test_each_repetition_is_a_row(run: CommandLine) -> None:
    assert len(rows(run, "publish", *SMALL, "--repeat", "3")) == 3


def test_a_callback_that_works_slows_pulling(run: CommandLine) -> None:
    (row,) = rows(run, "pull", "--messages", "40", "--work", "20ms", "--workers", "4")
    assert row["seconds"] > 40 / 4 * 0.02 * 0.8


def test_latency_counts_the_messages_after_the_warm_up(
    run: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measuring, "_WARM_UP_S", 0.1)
    (row,) = rows(run, "latency", "--rate", "100", "--seconds", "1")
    assert row["messages"] == 100
    assert 0 < row["p50_ms"] <= row["p99_ms"] <= row["max_ms"]


def test_a_client_that_may_not_make_topics_is_reported_so() -> None:
    with PubSub.in_memory(create=False) as pubsub:
        error = CommandLine(pubsub, shares=True).error("bench", "publish", *SMALL)
    assert error["type"] == "FailedPrecondition"
    assert "this client may not make topics: run it as one that may" in str(error["message"])


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


def test_a_person_gets_a_table(run: CommandLine) -> None:
    outcome = run("bench", "publish", *SMALL)
    assert outcome.exit_code == 0
    assert outcome.stdout.splitlines()[0].split() == [
        *("messages", "seconds", "messages", "per", "second", "megabytes", "per", "second")
    ]


def test_alone_it_shows_its_commands(run: CommandLine) -> None:
    outcome = run("bench")
    assert outcome.exit_code == 2
    assert all(name in outcome.stderr for name in ("publish", "pull", "latency"))
