"""Properties files as Java reads them."""

from __future__ import annotations

import pytest

from kafka_pubsub.log.kafka.java_properties import Line, parse_login, parse_properties


def test_lines_are_read_as_java_reads_them() -> None:
    text = (
        "# a comment\n  ! another\n\na=1\nb : 2\nc 3\nd=x\\\n   y\ne\\:f=\\u00e4\\t\\\\\ng=\r\nh = # no comment \n"
        "last"
    )
    assert list(parse_properties(text)) == [
        Line(4, "a", "1"),
        Line(5, "b", "2"),
        Line(6, "c", "3"),
        Line(7, "d", "xy"),
        Line(9, "e:f", "\u00e4\t\\"),
        Line(10, "g", ""),
        Line(11, "h", "# no comment "),
        Line(12, "last", ""),
    ]


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (r"a\bc", "a\bc"),
        (r"\f\n\r\t\a\v", "\f\n\r\t\a\v"),
        (r"\102\1023\477\7x\08", "BB3\x277\x07x\x008"),
        (r"\u0041\"\'\\\x", "u0041\"'\\x"),
    ],
)
def test_escapes_in_a_login_are_read_as_java_reads_them(written: str, read: str) -> None:
    assert parse_login(f'a.Module required password="{written}";').options == {"password": read}
