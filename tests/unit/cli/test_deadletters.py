"""`deadletter` and `subscription keys` over an in-memory cluster."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from kafka_pubsub import DeadLetterPolicy, Message
from kafka_pubsub.cli.types import MOMENT, ago
from tests.unit.cli.conftest import CommandLine
from tests.unit.dying import PATIENCE, QUICK, deliver, until


@pytest.fixture
def billing(run: CommandLine) -> CommandLine:
    """Three dead letters of two keys: a 1, b 2, a 3."""
    prepare(run, "dead_letter")
    sub = run.pubsub.subscription("billing")
    with sub.pull(fail):
        until(lambda: len(list(sub.dead_letters())) == 3)
    return run


def prepare(run: CommandLine, on_exhausted: Any) -> None:
    run.pubsub.create_topic("orders", partitions=1)
    run.pubsub.create_topic("dead", partitions=1)
    policy = DeadLetterPolicy(topic="dead", on_exhausted=on_exhausted)
    run.pubsub.create_subscription(
        "billing", "orders", message_ordering=True, retry=QUICK, dead_letter=policy
    )
    for key, data in (("a", b"1"), ("b", b"2\xff"), ("a", b"3")):
        run.pubsub.topic("orders").publish(data, ordering_key=key, attributes={"x": "y"}).result(PATIENCE)


def fail(message: Message) -> None:
    raise ValueError(f"bad {message.offset}")


def test_dead_letters_are_listed_for_programs_and_for_people(billing: CommandLine) -> None:
    dead_letters: Any = billing.json("deadletter", "list", "billing")
    assert sorted((each["key"], each["message_id"], each["error"]) for each in dead_letters) == [
        ("a", "orders:0:0", "bad 0"),
        ("a", "orders:0:2", "bad 2"),
        ("b", "orders:0:1", "bad 1"),
    ]
    one = dead_letters[0]
    assert (one["error_class"], one["attempts"], one["replays"], one["problem"]) == ("ValueError", 5, 0, None)
    assert datetime.fromisoformat(one["died"]) > datetime.now(UTC) - timedelta(minutes=1)
    text = billing("deadletter", "list", "billing").stdout
    assert "ValueError: bad 0" in text
    assert "orders:0:2" in text
    assert "s ago" in text


def test_a_long_list_says_that_there_is_more(billing: CommandLine) -> None:
    result = billing("deadletter", "list", "billing", "--limit", "2")
    assert len(result.stdout.splitlines()) == 3
    assert "There are more" in result.stderr
    dead_letters: Any = billing.json("deadletter", "list", "billing", "--limit", "1")
    assert len(dead_letters) == 1


def test_one_dead_letter_is_shown_with_its_data(billing: CommandLine) -> None:
    dead_letters: Any = billing.json("deadletter", "list", "billing", "--key", "b")
    shown: Any = billing.json("deadletter", "show", "billing", dead_letters[0]["place"])
    assert shown == billing.json("deadletter", "show", "billing", "orders:0:1")
    assert shown["message_id"] == "orders:0:1"
    assert (shown["data"], shown["data_encoding"], shown["attributes"]) == ("Mv8=", "base64", {"x": "y"})
    text = billing("deadletter", "show", "billing", "orders:0:1").stdout
    assert "bad 1" in text
    assert "x=y" in text
    error = billing.error("deadletter", "show", "billing", "0:99")
    assert (error["code"], error["exit_code"]) == (5, 1)
    assert "may have been replayed or purged" in str(error["message"])


def test_replay_says_what_it_would_do_and_what_it_did(billing: CommandLine) -> None:
    planned = billing.json("deadletter", "replay", "billing", "--key", "a", "--dry-run")
    done = {"subscription": "billing", "replayed": 2, "keys": 1, "skipped": [], "dry_run": True}
    assert planned == done
    assert billing.json("deadletter", "replay", "billing", "--key", "a") == {**done, "dry_run": False}
    assert [each["key"] for each in _list(billing)] == ["b"]
    result = billing("deadletter", "replay", "billing")
    assert result.stdout == "Replayed 1 dead letter of 1 key (billing)\n"
    assert "No process receives from billing now" in result.stderr
    assert _list(billing) == []
    assert [each.ordering_key for each in deliver(billing.pubsub.subscription("billing"), 3)].count("a") == 2


def test_a_replay_of_messages_without_a_key_reports_no_keys(billing: CommandLine) -> None:
    sub = billing.pubsub.subscription("billing")
    with sub.pull(fail):
        billing.pubsub.topic("orders").publish(b"4").result(PATIENCE)
        until(lambda: len(list(sub.dead_letters())) == 4)
    (dead_letter,) = [each.id for each in sub.dead_letters() if each.ordering_key is None]
    result = billing("deadletter", "replay", "billing", "--id", dead_letter)
    assert result.stdout == "Replayed 1 dead letter (billing)\n"


def _list(run: CommandLine, *arguments: str) -> list[dict[str, Any]]:
    found: Any = run.json("deadletter", "list", "billing", *arguments)
    assert isinstance(found, list)
    return found


@pytest.mark.parametrize(
    ("arguments", "count"),
    [
        (("--since", "1h"), 3),
        (("--until", "1h"), 0),
        (("--since", "2020-01-01", "--until", "2020-01-02T00:00Z"), 0),
        (("--error", "BAD 2"), 1),
        (("--key", "a", "--key", "b"), 3),
        (("--id", "0:0"), 1),
        (("--topic", "dead"), 3),
    ],
)
def test_dead_letters_are_picked(billing: CommandLine, arguments: tuple[str, ...], count: int) -> None:
    assert len(_list(billing, *arguments)) == count


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("list", "nobody"), 1, "subscription 'nobody' not found: `kafka-pubsub subscription create nobody"),
        (("list", "plain"), 1, "has no dead-letter policy, so it makes no dead letters: if it had a policy"),
        (
            ("list", "billing", "--topic", "nowhere"),
            1,
            "dead-letter topic 'nowhere' of subscription 'billing'",
        ),
        (("replay", "gone", "--topic", "dead"), 1, "subscription 'gone' not found"),
        (("replay", "billing", "--since", "yesterday"), 2, "'yesterday' is not a time"),
        (("replay", "billing", "--since", "99999999999d"), 2, "is not a time"),
        (("replay", "billing", "--id", "7"), 1, "--id: '7' is neither a message id"),
        (("purge", "billing", "--since", "1h", "--until", "2h", "--yes"), 1, "isn't before --until"),
        (("show", "billing", "x"), 1, "no dead letter x: it may have been replayed or purged"),
        (("release", "plain", "--drop", "--yes"), 1, "no dead-letter policy, so there is nowhere to drop"),
    ],
)
def test_what_cannot_be_done_is_said(
    billing: CommandLine, arguments: tuple[str, ...], code: int, text: str
) -> None:
    billing.pubsub.create_subscription("plain", "orders")
    error = billing.error("deadletter", *arguments)
    assert error["exit_code"] == code
    assert text in str(error["message"])


def test_a_topic_that_is_gone_is_named(billing: CommandLine) -> None:
    billing.pubsub.delete_topic("orders")
    assert "its topic 'orders' was deleted" in str(
        billing.error("deadletter", "replay", "billing")["message"]
    )
    result = billing("deadletter", "list", "billing")
    assert (
        "3 of these can't be replayed; `kafka-pubsub deadletter show billing ID` says why." in result.stderr
    )
    shown: Any = billing.json("deadletter", "show", "billing", "0:0")
    assert shown["problem"] == "the topic 'orders' that it was published to was deleted"


def test_purge_gives_up_what_is_picked(billing: CommandLine) -> None:
    done = {"subscription": "billing", "purged": 2, "keys": 1, "skipped": [], "dry_run": False}
    assert billing.json("deadletter", "purge", "billing", "--key", "a", "--yes") == done
    assert [each["key"] for each in _list(billing)] == ["b"]
    assert (
        billing("deadletter", "purge", "billing", "--yes").stdout
        == "Purged 1 dead letter of 1 key (billing)\n"
    )
    assert billing("deadletter", "replay", "billing").stdout == "No dead letter to replay (billing)\n"
    nothing = billing("deadletter", "list", "billing")
    assert (nothing.stdout, nothing.stderr) == ("", "No dead letters of billing.\n")


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-03-01T08:00Z", datetime(2026, 3, 1, 8, tzinfo=UTC)),
        ("2026-03-01T08:00:30+02:00", datetime(2026, 3, 1, 6, 0, 30, tzinfo=UTC)),
    ],
)
def test_a_moment_is_read(text: str, moment: datetime) -> None:
    assert MOMENT.convert(text, None, None) == moment


def test_a_moment_may_be_how_long_ago() -> None:
    before = datetime.now(UTC)
    moment = MOMENT.convert("2h", None, None)
    assert before - timedelta(hours=2) <= moment <= datetime.now(UTC) - timedelta(hours=2)
    assert MOMENT.convert("2026-03-01", None, None).tzinfo is not None


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s ago"),
        (119, "119s ago"),
        (120, "2m ago"),
        (7200, "2h ago"),
        (-30, "in 30s"),
        (200_000, "2d ago"),
    ],
)
def test_how_long_ago_in_one_unit(seconds: float, text: str) -> None:
    now = datetime.now(UTC)
    assert ago(now - timedelta(seconds=seconds), now) == text


def test_a_stopped_replay_says_how_to_go_on(billing: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    import signal

    from kafka_pubsub.dead_letters.replay import DeadLetters
    from kafka_pubsub.services.signals import Stopped

    def stopped(*_: object, **__: object) -> None:
        raise Stopped(signal.SIGINT)

    monkeypatch.setattr(DeadLetters, "store", stopped)
    result = billing("deadletter", "replay", "billing")
    assert result.exit_code == 130
    assert "the same command goes on with the rest" in result.stderr


def test_json_errors_stay_json(billing: CommandLine) -> None:
    result = billing("deadletter", "list", "nobody", "--json")
    assert json.loads(result.stderr)["error"]["type"] == "NotFound"


def test_a_dead_letter_is_shown_as_a_record(billing: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "orders").mkdir()
    (tmp_path / "orders" / "v1.avsc").write_text('"long"')
    billing.schemas = str(tmp_path)
    answer: Any = billing.json("deadletter", "show", "billing", "orders:0:0", "--decode")
    assert answer["record"] is None
    assert "doesn't say its schema" in answer["not_a_record"]
    attributes = {"record-schema": "orders/1"}
    billing.pubsub.topic("orders").publish(b"\x22", attributes=attributes).result(PATIENCE)
    sub = billing.pubsub.subscription("billing")
    with sub.pull(fail):
        until(lambda: len(list(sub.dead_letters())) == 4)
    answer = billing.json("deadletter", "show", "billing", "orders:0:3", "--decode")
    assert (answer["record"], answer["attributes"]) == (17, attributes)
