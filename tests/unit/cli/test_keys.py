"""Where a line's ordering key comes from."""

from __future__ import annotations

import click
import pytest

from kafka_pubsub.cli.keys import KeyRule
from kafka_pubsub.errors import InvalidArgument


@pytest.mark.parametrize(
    ("rule", "line", "key", "data"),
    [
        (KeyRule(), b"a:b", None, b"a:b"),
        (KeyRule.of("k", None, None), b"a:b", "k", b"a:b"),
        (KeyRule.of(None, None, ":"), b"a:b:c", "a", b"b:c"),
        (
            KeyRule.of(None, None, ":"),
            "ä:\xff".encode("latin-1").replace(b"\xe4", "ä".encode()),
            "ä",
            b"\xff",
        ),
        (KeyRule.of(None, "user", None), b'{"user": "u1"}', "u1", b'{"user": "u1"}'),
        (KeyRule.of(None, "user.id", None), b'{"user": {"id": 7}}', "7", b'{"user": {"id": 7}}'),
    ],
)
def test_a_line_is_split(rule: KeyRule, line: bytes, key: str | None, data: bytes) -> None:
    assert rule.split(line, 1) == (key, data)


@pytest.mark.parametrize(
    ("rule", "line", "text"),
    [
        (KeyRule.of(None, None, ":"), b"abc", "line 9: no ':' that ends a key"),
        (KeyRule.of(None, None, ":"), b"\xff:abc", "line 9: its key b'\\xff' isn't UTF-8"),
        (KeyRule.of(None, "user", None), b"abc", "line 9: not JSON"),
        (KeyRule.of(None, "user", None), b"{}", "line 9: no field 'user'"),
        (KeyRule.of(None, "user.id", None), b'{"user": 1}', "line 9: no field 'user.id'"),
        (KeyRule.of(None, "user", None), b'{"user": null}', "line 9: field 'user' is null"),
        (KeyRule.of(None, "user", None), b'{"user": true}', "line 9: field 'user' is true"),
        (KeyRule.of(None, "user", None), b'{"user": 1.5}', "line 9: field 'user' is 1.5"),
        (KeyRule.of(None, "user", None), b"[" * 100_000, "line 9: not JSON"),
    ],
)
def test_a_line_without_a_key_is_refused_by_its_number(rule: KeyRule, line: bytes, text: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        rule.split(line, 9)
    assert caught.value.message.startswith(text)


@pytest.mark.parametrize("given", [("k", "f", None), ("k", None, ":"), (None, "f", ":")])
def test_two_rules_contradict_each_other(given: tuple[str | None, str | None, str | None]) -> None:
    with pytest.raises(click.UsageError):
        KeyRule.of(*given)


def test_an_empty_separator_is_refused() -> None:
    with pytest.raises(click.BadParameter):
        KeyRule.of(None, None, "")
