"""`kafka-pubsub bench` over an in-memory cluster: its answers, and that nothing is left behind."""

from __future__ import annotations

import pytest

from kafka_pubsub.app import PubSub
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


def test_a_client_that_may_not_make_topics_is_reported_so() -> None:
    with PubSub.in_memory(create=False) as pubsub:
        error = CommandLine(pubsub, shares=True).error("bench", "publish", *SMALL)
    assert error["type"] == "FailedPrecondition"
    assert "this client may not make topics: run it as one that may" in str(error["message"])


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
