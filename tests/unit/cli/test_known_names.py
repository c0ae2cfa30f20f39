"""A shell completes the names of topics and subscriptions, and hears nothing after a failure."""

from __future__ import annotations

import contextlib
import threading

import click
import pytest
from click.shell_completion import ShellComplete

from kafka_pubsub.app import PubSub
from kafka_pubsub.cli import known_names
from kafka_pubsub.cli.context import Session
from kafka_pubsub.cli.main import cli
from kafka_pubsub.errors import BrokerUnavailable
from tests.unit.cli.conftest import CommandLine

CALLS = [
    (["topic", "describe"], ["orders", "orders-dead"]),
    (["topic", "tail"], ["orders", "orders-dead"]),
    (["topic", "delete", "--yes"], ["orders", "orders-dead"]),
    (["publish"], ["orders", "orders-dead"]),
    (["sub", "create", "x", "--topic"], ["orders", "orders-dead"]),
    (["sub", "update", "x", "--dead-letter-topic"], ["orders", "orders-dead"]),
    (["delay", "list", "--topic"], ["orders", "orders-dead"]),
    (["multicast", "status"], ["orders", "orders-dead"]),
    (["subscription", "describe"], ["orders-mail"]),
    (["subscription", "keys"], ["orders-mail"]),
    (["subscription", "metrics"], ["orders-mail"]),
    (["pull"], ["orders-mail"]),
    (["peek"], ["orders-mail"]),
    (["deadletter", "replay"], ["orders-mail"]),
    (["deadletter", "list", "x", "--topic"], ["orders", "orders-dead"]),
    (["topic", "create"], []),
    (["subscription", "create"], []),
]


def completed(session: Session, words: list[str], incomplete: str) -> list[str]:
    shell = ShellComplete(cli, {"obj": session}, "kafka-pubsub", "_KAFKA_PUBSUB_COMPLETE")
    return [each.value for each in shell.get_completions(words, incomplete)]


@pytest.mark.parametrize(("words", "expected"), CALLS, ids=" ".join)
def test_names_of_the_right_kind_are_offered(run: CommandLine, words: list[str], expected: list[str]) -> None:
    for name in ("orders", "orders-dead", "audit"):
        run.pubsub.create_topic(name)
    for name in ("orders-mail", "billing"):
        run.pubsub.create_subscription(name, "orders")
    session = Session(
        open_pubsub=lambda *_: contextlib.nullcontext(run.pubsub),
        find_running=lambda: "memory",
    )
    assert completed(session, words, "ord") == expected


def test_without_an_address_there_is_nothing_to_choose_from(capsys: pytest.CaptureFixture[str]) -> None:
    assert completed(Session(find_running=lambda: None), ["topic", "describe"], "") == []
    assert capsys.readouterr() == ("", "")


def test_a_cluster_that_refuses_or_is_silent_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(known_names, "PATIENCE", 0.05)
    go = threading.Event()

    def silent(*_: object) -> contextlib.AbstractContextManager[PubSub]:
        go.wait(30)
        raise BrokerUnavailable("nothing there")

    session = Session(open_pubsub=silent, find_running=lambda: "there")
    assert completed(session, ["pull"], "") == []
    go.set()
    assert completed(session, ["pull"], "") == []
    assert capsys.readouterr() == ("", "")


def test_an_address_on_the_line_is_the_one_that_is_asked() -> None:
    asked: list[str | None] = []

    def open_pubsub(bootstrap: str | None, *_: object) -> contextlib.AbstractContextManager[PubSub]:
        asked.append(bootstrap)
        raise click.ClickException("enough")

    session = Session(open_pubsub=open_pubsub, find_running=lambda: None)
    completed(session, ["-b", "elsewhere:9092", "topic", "describe"], "")
    assert asked == ["elsewhere:9092"]
