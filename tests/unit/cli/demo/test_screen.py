"""The frames that the demo draws."""

from __future__ import annotations

import pytest

from kafka_pubsub.cli.demo.ledger import Picture
from kafka_pubsub.cli.demo.run import Plan
from kafka_pubsub.cli.demo.screen import draw
from tests.unit.cli.demo.test_summary import picture, rendered


@pytest.mark.parametrize("keys", [1, 38, 39, 200, 229, 1000, 100_000])
def test_a_frame_fits_a_small_terminal_and_cuts_nothing(keys: int) -> None:
    plan = Plan(messages=5_000_000, keys=keys)
    lines = rendered(
        draw(picture(min(keys, 1000)), plan, (123_456.0, 99_999.0), "127.0.0.1:43187, for this demo only")
    )
    assert max(map(len, lines)) <= 80
    assert len(lines) <= 24
    assert not any("…" in line for line in lines)
    assert any("1,234,567/5,000,000" in line for line in lines)


def test_every_frame_has_the_same_height() -> None:
    empty = Picture(0, 0, 0, 0, 0, 0, frozenset(), frozenset(), frozenset(), ())
    frames = [rendered(draw(each, Plan(), (0, 0), "x")) for each in (empty, picture())]
    assert len(frames[0]) == len(frames[1])


def test_each_key_has_a_cell_that_reports_its_state() -> None:
    text = "\n".join(rendered(draw(picture(), Plan(), (0, 0), "x")))
    cells = text.split("handled")[0]
    assert (cells.count("●") - 1, cells.count("◆"), cells.count("○")) == (16, 5, 40 - 16 - 5)


def test_a_terminal_without_unicode_gets_ascii() -> None:
    text = "\n".join(rendered(draw(picture(), Plan(), (0, 0), "x", unicode=False)))
    assert "●" not in text
    assert "o o o" in text
