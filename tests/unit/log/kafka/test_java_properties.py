"""Properties files as Java reads them."""

from __future__ import annotations

from kafka_pubsub.log.kafka.java_properties import Line, parse_properties


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
