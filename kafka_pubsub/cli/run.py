"""`run`: the handlers of an app, in processes under one small parent."""

from __future__ import annotations

import json
import os
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

import click

from kafka_pubsub.cli.command import Command
from kafka_pubsub.cli.context import Session
from kafka_pubsub.cli.types import DURATION
from kafka_pubsub.services.signals import stop_flag

if TYPE_CHECKING:
    from kafka_pubsub.observe.workers import Sums

__all__ = ["environment_of", "run"]

#: Settings that name a cluster: the children get its address by `KAFKA_PUBSUB_BOOTSTRAP`.
_ADDRESS_SETTINGS: Final = ("bootstrap.servers", "metadata.broker.list")

#: The longest directory of sockets, in bytes: the path of a socket has at most 107.
_LONGEST = 95


@click.command(
    cls=Command,
    examples=[
        ("the app in shop.py", "kafka-pubsub run shop:app"),
        (
            "four processes, health at http://127.0.0.1:8080/readyz",
            "kafka-pubsub run shop:app --workers 4 --http 8080",
        ),
        ("while you write it", "kafka-pubsub run shop:app --reload"),
    ],
)
@click.argument("app", metavar="MODULE:APP")
@click.option(
    "--workers",
    type=click.IntRange(1, 256),
    default=1,
    show_default=True,
    help="How many processes; they share the partitions.",
)
@click.option("--reload", is_flag=True, help="Start anew when a Python file below this directory changes.")
@click.option(
    "--grace", type=DURATION, default="30s", show_default=True, help="How long handlers may take to end."
)
@click.option(
    "--http",
    metavar="HOST:PORT",
    help="Answer /livez, /readyz and /metrics; a port alone is open on this machine only.",
)
@click.pass_obj
def run(session: Session, app: str, workers: int, reload: bool, grace: float, http: str | None) -> None:
    """Run the handlers of an app until Ctrl-C or SIGTERM.

    APP is the name of an `App` in MODULE, `app` if you leave it out. The first signal ends in good order: nothing more
    is taken, handlers end, their acks are stored. A process that ends by itself is started again, after a pause.

    /readyz: each process is a member of the groups of its subscriptions. /livez: none is stuck. /metrics: the sums of
    all processes, for Prometheus (extra `metrics`).

    Ends with 2 if the module doesn't import, has no app, or a handler is declared wrongly.
    """
    from kafka_pubsub.errors import InvalidArgument
    from kafka_pubsub.handlers.health import HealthServer, parse_address
    from kafka_pubsub.handlers.processes import Parent, Sources
    from kafka_pubsub.observe.workers import Sums

    try:
        if http is not None:
            parse_address(http)
    except InvalidArgument as error:
        raise click.BadParameter(error.message, param_hint="--http") from error
    with ExitStack() as opened:
        figures = None if http is None else _figures(session, opened)
        parent = Parent(
            app,
            workers=workers,
            grace=grace,
            environment=environment_of(session),
            reload=Sources(Path.cwd()) if reload else None,
            figures=figures,
            tell=lambda text: session.output.note(f"{text[:1].upper()}{text[1:]}."),
        )
        if http is not None:
            sums = Sums(parent.sockets)
            metrics = partial(_expose, sums)
            server = opened.enter_context(HealthServer(http, parent.report, metrics))
            session.output.note(f"Port {server.port} answers /livez, /readyz and /metrics.")
        stop = opened.enter_context(stop_flag())
        code = parent.run(stop)
    stop.raise_if_set()
    raise SystemExit(code)


def _figures(session: Session, opened: ExitStack) -> Path | None:
    """Makes the directory of the processes' sockets; None: there can't be one, so /metrics has no figures of them."""
    try:
        folder = opened.enter_context(TemporaryDirectory(prefix="kafka_pubsub-"))
    except OSError as error:
        problem = str(error)
    else:
        if len(os.fsencode(folder)) <= _LONGEST:
            return Path(folder)
        problem = f"{folder} is too long for a socket"
    session.output.note(
        f"/metrics has no figures of the processes: {problem}. Let TMPDIR name a short directory that can be written."
    )
    return None


def _expose(sums: Sums, accept: str) -> tuple[str, bytes]:
    from kafka_pubsub.observe.metrics import exposition

    return exposition(sums.read(), accept)


def environment_of(session: Session) -> dict[str, str]:
    """Returns the environment of the processes: ours, with what the options name.

    There a `PubSub()` has the address and the settings of other commands with these options. A config file's values
    stay in the file: variables that would win over them are left out.
    """
    # What handlers print is seen at once, also where the output goes into a file.
    found = {"PYTHONUNBUFFERED": "1", **os.environ}
    if not session.bootstrap and not session.config_file and not session.config:
        return found
    from kafka_pubsub.config import load_settings

    hidden = set(session.settings()) | set(_ADDRESS_SETTINGS)
    before = {name: value for name, value in load_settings().config.items() if name not in hidden}
    own = {name: value for name, value in session.config.items() if name not in _ADDRESS_SETTINGS}
    found["KAFKA_PUBSUB_CONFIG"] = json.dumps({**before, **own})
    if session.config_file:
        found["KAFKA_PUBSUB_CONFIG_FILE"] = os.path.abspath(session.config_file)
    address = session.address()
    if address:
        found["KAFKA_PUBSUB_BOOTSTRAP"] = address
    return found
