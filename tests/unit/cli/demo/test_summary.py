"""The summary of the demo."""

from __future__ import annotations

import io

from rich.console import Console

from kafka_pubsub.cli.demo.ledger import Comeback, Picture
from kafka_pubsub.cli.demo.run import Plan
from kafka_pubsub.cli.demo.story import user_name
from kafka_pubsub.cli.demo.summary import summary


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
