"""`demo`: starts Kafka if there is none, publishes and consumes the events, draws them, and says what was proven.

Rule: exit code 1 if the order of any key was broken or a message was lost.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import click

from kafka_pubsub.cli.broker import progress
from kafka_pubsub.cli.command import Command
from kafka_pubsub.cli.context import Session
from kafka_pubsub.cli.output import JsonValue, to_json
from kafka_pubsub.services.signals import StopFlag, stop_flag

if TYPE_CHECKING:
    from rich.console import Console

    from kafka_pubsub.cli.demo.run import Plan, Run
    from kafka_pubsub.cli.demo.screen import Screen

__all__ = ["demo"]

FRAME_S = 0.1


@click.command(
    cls=Command,
    examples=[
        ("", "kafka-pubsub demo"),
        ("rougher: one delivery in five fails", "kafka-pubsub demo --nack-rate 0.2 --workers 32"),
        ("for a script", "kafka-pubsub demo --messages 2000 --json"),
    ],
)
@click.option(
    "--messages",
    type=click.IntRange(1, 5_000_000),
    default=20_000,
    show_default=True,
    help="How many events.",
)
@click.option(
    "--keys",
    type=click.IntRange(1, 100_000),
    default=200,
    show_default=True,
    help="How many users, each an ordering key.",
)
@click.option(
    "--workers",
    type=click.IntRange(1, 256),
    default=16,
    show_default=True,
    help="How many threads handle events.",
)
@click.option(
    "--nack-rate",
    type=click.FloatRange(0, 0.9),
    default=0.02,
    show_default=True,
    help="Part of the deliveries that is refused.",
)
@click.option("--seed", type=int, default=1, show_default=True, help="The same seed tells the same story.")
@click.pass_context
def demo(ctx: click.Context, messages: int, keys: int, workers: int, nack_rate: float, seed: int) -> None:
    """See ordering keys hold on a real Kafka, in half a minute.

    Users of a shop log in, look around, order and pay. Several threads publish these events, several workers
    handle them, and some deliveries are nacked on purpose. Each nacked event comes again before any later event of its
    user, and no other user waits for it. Uses the Kafka that runs, or starts one for the demo and removes it.
    """
    from kafka_pubsub.cli.demo.run import Plan, Run

    plan = Plan(messages, keys, workers, nack_rate, seed)
    session = ctx.ensure_object(Session)
    started = time.monotonic()
    with _kafka(session) as kafka, session.pubsub() as pubsub, stop_flag() as stop:
        with (
            Run(pubsub, plan, disposable=kafka.ours) as run,
            _screen(session, plan, kafka.headline) as screen,
        ):
            run.start()
            while not run.finished() and not stop.is_set():
                screen.show(run.ledger.picture())
                time.sleep(FRAME_S)
            if not stop.is_set():
                run.settle()
            screen.show(run.ledger.picture())
        _say_if_stopped(session, stop, run)
    kept = _tell_outcome(session, run, time.monotonic() - started)
    if not kept:
        ctx.exit(1)


def _say_if_stopped(session: Session, stop: StopFlag, run: Run) -> None:
    if stop.is_set():
        picture = run.ledger.picture()
        broken = "; ".join(run.ledger.violations)
        held = f"{picture.violations:,} out of order: {broken}" if broken else "no order was broken"
        session.output.note(f"Stopped after {picture.finished:,} of {run.plan.messages:,} events; {held}.")
        stop.raise_if_set()


class _Kafka(NamedTuple):
    headline: str
    ours: bool


@contextmanager
def _kafka(session: Session) -> Iterator[_Kafka]:
    """Yields the Kafka of the demo; starts one if there is none."""
    address = session.address()
    if address is not None:
        yield _Kafka(address, ours=False)
        return
    from kafka_pubsub.local import LocalKafka

    with contextlib.ExitStack() as stack:
        with progress(session) as tell:
            kafka = stack.enter_context(LocalKafka(on_progress=tell))
        session.bootstrap = kafka.bootstrap
        yield _Kafka(f"{kafka.bootstrap}, for this demo only", ours=True)


@contextmanager
def _screen(session: Session, plan: Plan, where: str) -> Iterator[Screen]:
    from kafka_pubsub.cli.demo.screen import LiveScreen, NoScreen, PlainLines

    console = _console()
    screen: Screen
    if session.as_json:
        screen = NoScreen()
    elif console.is_terminal:
        screen = LiveScreen(console, plan, where)
    else:
        screen = PlainLines(console, plan)
    with screen:
        yield screen


def _console() -> Console:
    from rich.console import Console

    return Console()


def _tell_outcome(session: Session, run: Run, total_seconds: float) -> bool:
    """Writes the summary; returns whether every promise was kept."""
    picture = run.ledger.picture()
    lost = sum(run.ledger.lost().values())
    kept = not picture.violations and not lost
    if session.as_json:
        result: dict[str, JsonValue] = {
            "ok": kept,
            "published": picture.published,
            "consumed": picture.finished,
            "keys": run.plan.keys,
            "publishers": run.plan.publishers,
            "workers": run.plan.workers,
            "seed": run.plan.seed,
            "nacked": picture.nacks,
            "redelivered": picture.redelivered,
            "delivered_after_ack": picture.repeats,
            "order_violations": picture.violations,
            "violations": list(run.ledger.violations),
            "lost": lost,
            "seconds": round(run.seconds, 3),
            "total_seconds": round(total_seconds, 3),
            "consumed_per_second": round(picture.finished / max(run.seconds, 1e-6)),
        }
        session.output.line(to_json(result))
    else:
        from kafka_pubsub.cli.demo.summary import summary

        _console().print(
            summary(picture, run.plan, lost, run.ledger.violations, run.seconds), highlight=False
        )
    return kept
