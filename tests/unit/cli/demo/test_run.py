"""The demo over an in-memory cluster, and what it draws."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from kafka_pubsub.cli.demo.ledger import Comeback, Picture
from kafka_pubsub.cli.demo.run import Plan
from kafka_pubsub.cli.demo.screen import draw
from kafka_pubsub.cli.demo.story import user_name
from kafka_pubsub.cli.demo.summary import summary
from tests.unit.cli.conftest import CommandLine


def picture(keys: int = 200, violations: int = 0) -> Picture:
    names = [user_name(number) for number in range(keys)]
    return Picture(
        published=1_234_567,
        finished=1_200_000,
        nacks=99_999,
        redelivered=99_998,
        repeats=0,
        violations=violations,
        in_flight=frozenset(names[:16]),
        blocked=frozenset(names[20:25]),
        busy=frozenset(names[:40]),
        comebacks=tuple(Comeback(f"user-{99_990 + number}", 10_000, 12, 12.3, 1_234) for number in range(4)),
    )


def rendered(content: object, width: int = 80, encoding: str = "utf-8") -> list[str]:
    raw = io.BytesIO()
    console = Console(file=io.TextIOWrapper(raw, encoding=encoding), width=width, color_system=None)
    console.print(content, highlight=False)
    console.file.flush()
    return raw.getvalue().decode(encoding).splitlines()


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


def test_the_summary_says_what_was_proven() -> None:
    text = " ".join(
        " ".join(rendered(summary(picture()._replace(finished=20_000), Plan(), 0, [], 8.0))).split()
    )
    assert "Every key kept its order, and nothing was lost." in text
    assert "0 out of order" in text
    assert "0 lost" in text


def test_a_broken_promise_is_not_painted_over() -> None:
    text = " ".join(
        rendered(summary(picture(violations=1), Plan(seed=77), 3, ["user-1 #3 was delivered"], 8.0))
    )
    assert "A promise was broken." in text
    assert "user-1 #3 was delivered" in text
    assert "77" in text
    assert "Every key" not in text


def test_the_demo_proves_order_in_memory(run: CommandLine) -> None:
    outcome = run.json("demo", "--messages", "300", "--keys", "10", "--workers", "4", "--nack-rate", "0.1")
    assert isinstance(outcome, dict)
    assert outcome["ok"] is True
    assert (outcome["published"], outcome["consumed"], outcome["lost"]) == (300, 300, 0)
    assert outcome["order_violations"] == 0
    assert outcome["nacked"] == outcome["redelivered"] > 5
    assert run.pubsub.list_topics() == []
    assert run.pubsub.list_subscriptions() == []


def test_without_a_terminal_it_writes_plain_lines(run: CommandLine) -> None:
    result = run("demo", "--messages", "100", "--keys", "5", "--workers", "2", "--nack-rate", "0")
    assert result.exit_code == 0, result.output
    assert "\x1b" not in result.stdout
    assert "consumed 100 " in result.stdout
    assert "Every key kept its order, and nothing was lost." in result.stdout
