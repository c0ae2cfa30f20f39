"""`deadletter` and `subscription keys` over an in-memory cluster."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
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


@pytest.fixture
def parked(run: CommandLine) -> CommandLine:
    """Keys a and b are parked, a with a successor."""
    prepare(run, "park")
    sub = run.pubsub.subscription("billing")
    with sub.pull(fail):
        until(lambda: [each.state for each in list(sub.keys())] == ["parked", "parked"])
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


def test_parked_keys_are_shown_and_released(parked: CommandLine) -> None:
    keys: Any = parked.json("subscription", "keys", "billing")
    assert [(each["key"], each["state"], each["offset"], each["error"]) for each in keys] == [
        ("a", "parked", 0, "ValueError: bad 0"),
        ("b", "parked", 1, "ValueError: bad 1"),
    ]
    assert keys[0]["next_due"] is None
    assert datetime.fromisoformat(keys[0]["since"]) > datetime.now(UTC) - timedelta(minutes=1)
    result = parked("sub", "keys", "billing")
    assert "its attempts are used up: ValueError: bad 0" in result.stdout
    assert "`kafka-pubsub deadletter release billing`" in result.stderr
    assert parked.json("subscription", "keys", "billing", "--state", "leased") == []
    done = parked.json("deadletter", "release", "billing", "--id", "0:0")
    assert done == {"subscription": "billing", "released": 1, "keys": 1, "skipped": [], "dry_run": False}
    assert [each.data for each in deliver(parked.pubsub.subscription("billing"), 2)] == [b"1", b"3"]
    result = parked("deadletter", "release", "billing", "--drop", "--yes")
    assert result.stdout == "Dropped 1 parked message of 1 key (billing)\n"
    assert "as soon as one does" in result.stderr


def test_nothing_held_up_is_said(billing: CommandLine) -> None:
    result = billing("subscription", "keys", "billing")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "No key of billing is held up.\n")


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

    from kafka_pubsub.cli.signals import Stopped
    from kafka_pubsub.dead_letters.replay import DeadLetters

    def stopped(*_: object, **__: object) -> None:
        raise Stopped(signal.SIGINT)

    monkeypatch.setattr(DeadLetters, "store", stopped)
    result = billing("deadletter", "replay", "billing")
    assert result.exit_code == 130
    assert "the same command goes on with the rest" in result.stderr


def test_json_errors_stay_json(billing: CommandLine) -> None:
    result = billing("deadletter", "list", "nobody", "--json")
    assert json.loads(result.stderr)["error"]["type"] == "NotFound"


def test_what_is_parked_in_a_lane_is_released_by_the_id_that_keys_shows(run: CommandLine) -> None:
    run.pubsub.create_topic("jobs", partitions=1, priorities=10)
    run.pubsub.create_topic("dead", partitions=1)
    policy = DeadLetterPolicy(topic="dead", on_exhausted="park")
    sub = run.pubsub.create_subscription(
        "mail", "jobs", message_ordering=True, retry=QUICK, dead_letter=policy
    )
    for priority in (9, 4):
        publish = run.pubsub.topic("jobs").publish
        publish(b"x", priority=priority, ordering_key=f"of-{priority}").result(PATIENCE)
    with sub.pull(fail):
        until(lambda: [each.state for each in list(sub.keys())] == ["parked", "parked"])
    keys: Any = run.json("subscription", "keys", "mail")
    places = {each["key"]: (each["topic"], each["partition"], each["offset"]) for each in keys}
    assert places == {"of-4": ("jobs", 0, 0), "of-9": ("jobs.lane.p9", 0, 0)}
    shown = run("subscription", "keys", "mail").stdout.splitlines()
    assert [line.split()[-1] for line in shown[1:]] == ["jobs:0:0", "jobs.lane.p9:0:0"]
    error = run.error("deadletter", "show", "mail", "jobs.lane.p9:0:0")
    assert "message jobs.lane.p9:0:0 is no dead letter, it is parked: see" in str(error["message"])
    said = run("deadletter", "replay", "mail", "--id", "jobs.lane.p9:0:0")
    assert said.stdout == "No dead letter to replay (mail)\n"
    assert "Message jobs.lane.p9:0:0 is no dead letter, it is parked: see `kafka-pubsub sub" in said.stderr
    dropped: Any = run.json("deadletter", "release", "mail", "--id", "jobs.lane.p9:0:0", "--drop", "--yes")
    assert dropped["dropped"] == 1
    assert run.json("deadletter", "release", "mail", "--id", "0:0", "--dry-run")
    with sub.pull(Message.ack):
        until(lambda: [each.ordering_key for each in list(sub.keys())] == ["of-4"])
        until(lambda: [each["key"] for each in run.json("deadletter", "list", "mail")] == ["of-9"])  # type: ignore[attr-defined]
    (dead,) = list(sub.dead_letters())
    assert (dead.topic, dead.ordering_key) == ("jobs.lane.p9", "of-9")
    said = run("deadletter", "release", "mail", "--id", "jobs.lane.p9:0:0")
    assert (
        "Message jobs.lane.p9:0:0 isn't parked, it is a dead letter: `kafka-pubsub deadletter" in said.stderr
    )
