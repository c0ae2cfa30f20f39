"""The summary of the demo, in words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from kafka_pubsub.cli.demo.ledger import Picture
from kafka_pubsub.cli.demo.run import Plan

__all__ = ["summary"]


def summary(
    picture: Picture, plan: Plan, lost: int, violations: Sequence[str], seconds: float
) -> RenderableType:
    """Returns the summary: what was proven, and how to go on."""
    kept = not picture.violations and not lost
    headline = "Every key kept its order, and nothing was lost." if kept else "A promise was broken."
    lines: list[RenderableType] = [Text(headline, "bold green" if kept else "bold red"), Text()]
    lines.append(_proofs(_facts(picture, plan, lost, seconds)))
    lines += [Text(f"    {text}", "red") for text in violations]
    if kept:
        lines += [Text(), Text("Try next", "bold")]
        lines += [Text.assemble(f"  {command:<38}", (why, "dim")) for command, why in _NEXT]
    else:
        lines += [Text(), Text(f"Please report it, with its seed ({plan.seed}) and these lines.")]
    return Padding(Group(*lines), (0, 2, 1, 2))


_NEXT = (
    ("kafka-pubsub demo --nack-rate 0.2", "one delivery in five fails"),
    ("kafka-pubsub up", "a Kafka that stays"),
    ("kafka-pubsub topic create orders", "your own topic"),
    ("kafka-pubsub --help", "everything else, with examples"),
)


def _facts(picture: Picture, plan: Plan, lost: int, seconds: float) -> Iterator[tuple[bool, str]]:
    rate = picture.finished / max(seconds, 1e-6)
    yield (
        picture.finished == plan.messages,
        f"{picture.finished:,} events of {plan.keys:,} users, published by {plan.publishers} threads, handled by "
        f"{plan.workers} workers in {seconds:.1f} s ({rate:,.0f}/s)",
    )
    yield (
        picture.violations == 0,
        f"{picture.violations:,} out of order: each user's events came one after the other, without a gap",
    )
    yield (
        True,
        f"{picture.nacks:,} nacked on purpose: each came again before anything later of its user, while all "
        "other users went on",
    )
    yield lost == 0, f"{lost:,} lost"
    if picture.repeats:
        yield (
            False,
            f"{picture.repeats:,} came again after their ack (allowed, but nothing here should cause it)",
        )


def _proofs(facts: Iterable[tuple[bool, str]]) -> Table:
    table = Table.grid(padding=(0, 1, 0, 0))
    table.add_column(width=1)
    table.add_column()
    for good, text in facts:
        table.add_row(Text("✓", "green") if good else Text("✗", "bold red"), text)
    return table
