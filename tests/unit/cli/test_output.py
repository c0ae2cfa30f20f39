"""What reaches stdout: JSON that any reader takes, and text that can't harm a terminal."""

from __future__ import annotations

import json

import pytest

from kafka_pubsub.cli import output
from kafka_pubsub.cli.output import JsonValue, Output, printable, text_or_base64, to_json


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
