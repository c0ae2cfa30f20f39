"""Output on stdout: JSON that any reader takes, and text that can't harm a terminal."""

from __future__ import annotations

import json

import pytest

from kafka_pubsub.cli import output
from kafka_pubsub.cli.output import JsonValue, Output, counted, printable, text_or_base64, to_json


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        (b"plain", "plain"),
        ("äöü 🙂".encode(), "äöü 🙂"),
        (b"\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        (b"a\nb\r\tc", "a\\nb\\r\tc"),
        ("\x9b31m".encode(), "\\x9b31m"),
        (b"\xff\xfe", "\\xff\\xfe"),
        ("x\udcff", "x\\xff"),
    ],
)
def test_control_characters_are_shown_and_not_sent(raw: bytes | str, shown: str) -> None:
    assert printable(raw) == shown


def test_json_is_one_line_of_utf8() -> None:
    line = to_json({"a": "ä\n", "n": None})
    assert line.decode("utf-8") == '{"a": "ä\\n", "n": null}'


def test_json_with_a_lone_surrogate_is_still_json() -> None:
    assert json.loads(to_json({"a": "x\udcff"})) == {"a": "x\udcff"}


def test_bytes_that_are_no_text_become_base64() -> None:
    assert text_or_base64(b"ok") == ("ok", False)
    assert text_or_base64(b"\xff") == ("/w==", True)


@pytest.mark.parametrize("topic", ["orders.lane.p7", "_kafka_pubsub.delay.in", "t" * 120])
def test_ids_never_wrap_and_can_be_copied_at_80_columns(
    topic: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(output, "at_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    row: dict[str, JsonValue] = {
        "message_id": f"{topic}:0:123456789012",
        "key": "a-rather-long-key-of-a-user-123456",
        "died": "3h ago",
        "attempts": 5,
        "error": "ValueError: " + "something is wrong " * 6,
        "place": "3:1234567",
    }
    Output(False).table([row], list(row), "")
    shown = capsys.readouterr().out
    assert f"{row['message_id']} " in shown
    assert " 3:1234567" in shown
    if len(topic) < 40:
        assert all(len(line) <= 80 for line in shown.splitlines())


def test_names_numbers_and_words_of_headers_are_whole_at_80_columns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(output, "at_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    figures = {
        "backlog": 12,
        "waiting_retry": 0,
        "parked": 1,
        "blocked_keys": 1,
        "dead_letters": 0,
        "lag": 1001,
    }
    row: dict[str, JsonValue] = {
        "name": "billing",
        "topic": "orders",
        "oldest_age": "27m",
        **figures,
        "members": 0,
    }
    Output(False).table([row], list(row), "")
    *headers, line = capsys.readouterr().out.splitlines()
    assert line.split() == ["billing", "orders", "27m", "12", "0", "1", "1", "0", "1,001", "0"]
    assert {"backlog", "waiting", "retry", "blocked", "letters", "members"} <= set(" ".join(headers).split())
    assert all(len(each) <= 80 for each in headers)
    keys: dict[str, JsonValue] = {
        "key": "bad2",
        "state": "parked",
        "since": "56s ago",
        "next_due": None,
        "attempt": 1,
        "behind": 0,
        "why": "its attempts are used up: it was nacked",
        "message_id": "_kafka_pubsub.delay.in:0:944",
    }
    Output(False).table([keys], list(keys), "")
    shown = capsys.readouterr().out
    assert "_kafka_pubsub.delay.in:0:944" in shown
    assert "parked" in shown


def test_one_is_no_plural() -> None:
    assert [counted(number, "message") for number in (0, 1, 1000)] == [
        "0 messages",
        "1 message",
        "1,000 messages",
    ]
