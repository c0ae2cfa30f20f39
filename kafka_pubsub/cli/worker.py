"""`worker`: the apps, connectors and services of a file, kept running in one process."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import click

from kafka_pubsub.cli.command import Command
from kafka_pubsub.cli.context import Session
from kafka_pubsub.cli.output import Output
from kafka_pubsub.cli.run import environment_of
from kafka_pubsub.cli.types import DURATION
from kafka_pubsub.services.signals import stop_flag

if TYPE_CHECKING:
    from kafka_pubsub.app import PubSub
    from kafka_pubsub.config import ConnectorRecord
    from kafka_pubsub.handlers.health import Report
    from kafka_pubsub.worker.follower import Follower
    from kafka_pubsub.worker.life import Life
    from kafka_pubsub.worker.settings import UnitSettings
    from kafka_pubsub.worker.worker import Worker

__all__ = ["worker"]

#: Seconds between two looks how the units are.
_LOOK = 0.5


@click.command(
    cls=Command,
    examples=[
        ("the units of worker.toml", "kafka-pubsub worker --config worker.toml"),
        (
            "with health at http://127.0.0.1:8080/readyz",
            "kafka-pubsub worker --config worker.toml --http 8080",
        ),
    ],
)
@click.option(
    "--config",
    "file",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="The file that names the units, in TOML.",
)
@click.option(
    "--grace", type=DURATION, default="30s", show_default=True, help="How long units may take to end."
)
@click.option(
    "--http",
    metavar="HOST:PORT",
    help="Answer Kafka Connect's REST interface, /livez, /readyz and /metrics; a port alone is open here only.",
)
@click.option(
    "--insecure",
    is_flag=True,
    help="Let other machines reach the interface though it has no token, or no TLS.",
)
@click.pass_obj
def worker(session: Session, file: Path, grace: float, http: str | None, insecure: bool) -> None:
    """Run the apps, connectors and services of a file.

    Each unit has a client and threads of its own. One that fails is started again after a pause that grows up to a
    minute, and the others go on. SIGTERM drains all of them. SIGHUP reads the file again: units that are new, gone or
    changed start and end. Start more workers with the same file, and they share the work.

    /readyz: each unit works. Ends with 2 if the file is wrong.
    """
    from kafka_pubsub.errors import InvalidArgument
    from kafka_pubsub.services.process import alone
    from kafka_pubsub.worker.follower import Follower
    from kafka_pubsub.worker.settings import read
    from kafka_pubsub.worker.units import make_unit
    from kafka_pubsub.worker.worker import Worker

    try:
        wanted = read(file)
    except InvalidArgument as error:
        raise click.BadParameter(error.message, param_hint="--config") from error
    os.environ.update(environment_of(session))
    _show_log()
    with alone(), stop_flag() as stop, _hangups() as hangups, contextlib.ExitStack() as opened:
        units = Worker(lambda name, settings: make_unit(name, settings, session.pubsub), grace=grace)
        pubsub = opened.enter_context(session.pubsub())
        cluster = pubsub._cluster

        def records() -> Mapping[str, ConnectorRecord]:
            backend = cluster.backend
            return backend.catalog.connectors()

        follower = Follower(units, records)
        if http is not None:
            port = opened.enter_context(_served(http, file, follower, units, pubsub, insecure=insecure))
            session.output.note(
                f"Port {port} answers Kafka Connect's REST interface, /livez, /readyz, /metrics and the page /ui."
            )
        watch = _Watch(session.output, units)
        try:
            follower.start(wanted)
            while not stop.is_set():
                if hangups:
                    hangups.clear()
                    _follow_again(follower, file, session.output)
                watch.look()
                stop.wait(_LOOK)
        finally:
            follower.stop()
            for name in units.stop():
                session.output.note(
                    f"{name} didn't end in time; another worker takes over what it was doing."
                )
        session.output.note("The worker has stopped.")
        stop.raise_if_set()


@contextlib.contextmanager
def _served(
    address: str, file: Path, follower: Follower, units: Worker, pubsub: PubSub, *, insecure: bool
) -> Iterator[int]:
    """Serves the REST interface inside the block, and yields the port."""
    from kafka_pubsub.errors import InvalidArgument
    from kafka_pubsub.handlers.health import parse_address
    from kafka_pubsub.observe.metrics import exposition, process_readings
    from kafka_pubsub.worker.control import Control
    from kafka_pubsub.worker.rest.access import Access, check_listening
    from kafka_pubsub.worker.secrets import resolve
    from kafka_pubsub.worker.settings import read_rest

    try:
        from kafka_pubsub.worker.rest.app import make_app
        from kafka_pubsub.worker.rest.server import RestServer
    except ImportError as error:
        raise click.UsageError(
            f"--http needs the extra worker ({error.name} is missing): pip install 'kafka-pubsub-orderly[worker]'"
        ) from error
    try:
        host, port = parse_address(address)
        rest = read_rest(file)
        secrets = resolve(
            {"token": rest.token, "read_token": rest.read_token, "user": rest.user, "password": rest.password}
        )
        access = Access(**secrets, insecure=insecure)
        check_listening(host, access, has_tls=bool(rest.cert_file))
    except InvalidArgument as error:
        raise click.BadParameter(error.message, param_hint="--http") from error
    read, cluster = process_readings(everything=True), pubsub._cluster
    control = Control(follower, units, lambda: cluster.backend, f"{host}:{port}")

    def cluster_id() -> str:
        backend = cluster.backend
        return backend.admin.cluster_id()

    app = make_app(
        control,
        version("kafka-pubsub-orderly"),
        cluster_id,
        access,
        lambda: _report(units.lives()),
        lambda accept: exposition(read(), accept),
        pubsub,
    )
    with RestServer(app, host, port, rest.cert_file or None, rest.key_file or None) as server:
        control.address = f"{host}:{server.port}"
        yield server.port


def _follow_again(follower: Follower, file: Path, output: Output) -> None:
    from kafka_pubsub.errors import InvalidArgument
    from kafka_pubsub.worker.settings import read

    try:
        wanted: dict[str, UnitSettings] = read(file)
    except InvalidArgument as error:
        output.note(f"The file is wrong, and everything goes on as before: {error.message}")
        return
    follower.read_file(wanted)
    output.note(f"Read {file} again: {', '.join(sorted(wanted))}.")


@contextlib.contextmanager
def _hangups() -> Iterator[list[int]]:
    """Yields a list that gets an entry with each SIGHUP inside the block."""
    found: list[int] = []

    def take(number: int, frame: FrameType | None) -> None:
        found.append(number)

    before = signal.signal(signal.SIGHUP, take)
    try:
        yield found
    finally:
        signal.signal(signal.SIGHUP, before)


def _show_log() -> None:
    if not logging.getLogger().handlers:
        logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")


def _report(lives: dict[str, Life]) -> Report:
    from kafka_pubsub.handlers.health import Report
    from kafka_pubsub.worker.life import UnitState

    details = {
        name: {"state": life.state.value, "error": life.error, "trace": life.trace, "restarts": life.restarts}
        for name, life in lives.items()
    }
    return Report(True, all(life.state is UnitState.RUNNING for life in lives.values()), {"units": details})


class _Watch:
    """Says what changes at each look."""

    def __init__(self, output: Output, units: Worker) -> None:
        self._output, self._units = output, units
        self._said: dict[str, str] = {}

    def look(self) -> None:
        lives = self._units.lives()
        for name, life in lives.items():
            now = life.state.value + (f": {life.error}" if life.error else "")
            if now != self._said.get(name):
                self._output.note(f"{name} is {now}")
        for name in self._said.keys() - lives.keys():
            self._output.note(f"{name} is STOPPED")
        self._said = {
            name: life.state.value + (f": {life.error}" if life.error else "") for name, life in lives.items()
        }
