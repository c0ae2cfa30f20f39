"""`service`: what runs beside clients, in the foreground until it is stopped."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

import click

from kafka_pubsub.cli.command import Command, Group
from kafka_pubsub.cli.context import Session
from kafka_pubsub.cli.output import Output, to_json
from kafka_pubsub.cli.serving import serve
from kafka_pubsub.services.signals import stop_flag

if TYPE_CHECKING:
    from kafka_pubsub.app import PubSub
    from kafka_pubsub.handlers.health import Report
    from kafka_pubsub.services.lifecycle import Service

__all__ = ["service"]

#: Seconds between two looks how the service is, and between two lines that say so.
_LOOK, _SAY = 1.0, 60.0
#: Seconds that stopping waits for what is under way.
_STOPPING = 30.0


HTTP = click.option(
    "--http",
    metavar="HOST:PORT",
    help="Answer /livez, /readyz and /metrics; a port alone is open on this machine only.",
)


@click.group(
    cls=Group,
    examples=[("bring delayed messages home", "kafka-pubsub service router")],
)
def service() -> None:
    """Run what works beside publishers and subscribers.

    A service runs until Ctrl-C or SIGTERM, which lets it finish what is under way. Any number of one kind share the
    work: run two for a spare.
    """


@service.command(
    cls=Command,
    examples=[
        ("delays of up to 8.5 years", "kafka-pubsub service router"),
        ("delays of up to an hour need 12 tiers", "kafka-pubsub service router --tiers 12"),
    ],
)
@click.option(
    "--tiers",
    type=click.IntRange(1, 28),
    help="How many tiers to make; delays go up to 2^tiers - 1 seconds.  [default: those there are, else 28]",
)
@click.option(
    "--partitions",
    type=click.IntRange(1),
    help="How many partitions to make, which so many routers can share.  [default: those there are, else 12]",
)
@click.option(
    "--begin-again",
    is_flag=True,
    help="If the broker has forgotten how far routers were, begin at the start of what is left.",
)
@HTTP
@click.pass_obj
def router(
    session: Session, tiers: int | None, partitions: int | None, begin_again: bool, http: str | None
) -> None:
    """Bring delayed messages to their topics when they are due.

    It makes the topics of the delay tiers if they are missing. A week after the last router has ended, brokers forget
    how far it was. Then a router needs --begin-again: nothing is lost, but what was handled last is delivered again.

    With --json it prints its counters as an object a line.
    """
    from kafka_pubsub.delays.service import DelayRouter

    _run(
        session,
        lambda pubsub: DelayRouter(pubsub, tiers=tiers, partitions=partitions, begin_again=begin_again),
        http=http,
    )


@service.command(
    cls=Command,
    examples=[("deliver messages to causal topics in their order", "kafka-pubsub service sequencer")],
)
@HTTP
@click.pass_obj
def sequencer(session: Session, http: str | None) -> None:
    """Give the messages to causal topics their one order, and deliver them.

    It takes up new causal topics by itself. With --json it prints its counters as an object a line.
    """
    from kafka_pubsub.multicast.service import Sequencer

    _run(session, Sequencer, http=http)


@service.command(
    "all",
    cls=Command,
    examples=[("what `kafka-pubsub up` runs beside the broker", "kafka-pubsub service all")],
)
@HTTP
@click.pass_obj
def all_services(session: Session, http: str | None) -> None:
    """Run a delay router and a sequencer in one process, as suits one machine.

    The delay tiers are made with one partition if they are missing.
    """
    from kafka_pubsub.delays.service import DelayRouter
    from kafka_pubsub.multicast.service import Sequencer

    def make_router(pubsub: PubSub) -> Service:
        topics = pubsub._cluster.delay_topics
        there = topics.find()
        return DelayRouter(pubsub, partitions=1 if there is None else None)

    _run(session, make_router, Sequencer, http=http)


def _run(session: Session, *kinds: Callable[[PubSub], Service], http: str | None) -> None:
    from kafka_pubsub.services.process import alone
    from kafka_pubsub.services.units import run_units

    with alone(), session.pubsub() as pubsub, stop_flag() as stop, ExitStack() as opened:
        units = [make(pubsub) for make in kinds]
        if http is not None:
            server = opened.enter_context(serve(http, lambda: _report(units)))
            session.output.note(f"Port {server.port} answers /livez, /readyz and /metrics.")
        watch = _Watch(session.output, units, as_json=session.as_json)
        late = run_units(units, stop, grace=_STOPPING, watch=watch.look, look=_LOOK)
        for name in late:
            session.output.note(f"The {name} didn't end in time; another one takes over what it was doing.")
        for each in units:
            session.output.note(f"The {each.name} has stopped.")
        stop.raise_if_set()


def _report(units: Sequence[Service]) -> Report:
    from kafka_pubsub.handlers.health import Report

    found = {each.name: each.health() for each in units}
    details = {name: {"state": each.state.value, "error": each.error} for name, each in found.items()}
    return Report(True, all(each.ok for each in found.values()), {"services": details})


class _Watch:
    """Says what changes, and how services are, at each look."""

    def __init__(self, output: Output, services: Sequence[Service], *, as_json: bool) -> None:
        self._output, self._services, self._as_json = output, services, as_json
        self._said: dict[str, str] = {}
        self._say_at = 0.0

    def look(self) -> None:
        due = time.monotonic() >= self._say_at
        if due:
            self._say_at = time.monotonic() + _SAY
        for each in self._services:
            health = each.health()
            now = f"{health.state.value}, {health.partitions} partitions" + (
                f": {health.error}" if health.error else ""
            )
            if due or now != self._said.get(each.name):
                self._said[each.name] = now
                _say(self._output, each, now, as_json=self._as_json)


def _say(output: Output, service: Service, now: str, *, as_json: bool) -> None:
    health = service.health()
    if as_json:
        answer = {"service": service.name, "state": health.state.value, "error": health.error}
        output.line(to_json({**answer, **service.metrics()}))
    else:
        counts = ", ".join(f"{name} {count:,}" for name, count in service.metrics().items())
        output.line(f"{service.name}: {now} ({counts})")
