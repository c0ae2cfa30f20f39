"""`up`, `down` and `status`: the embedded Kafka from the command line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kafka_pubsub.cli.advice import in_words_of
from kafka_pubsub.cli.command import Command
from kafka_pubsub.cli.context import Session
from kafka_pubsub.cli.output import JsonValue, stderr_console
from kafka_pubsub.cli.routers import NO_ROUTER, Delays, look_at_delays

if TYPE_CHECKING:
    from kafka_pubsub.local import Status

__all__ = ["down", "progress", "status", "up"]

#: The state of the services beside the broker, as `status` prints it.
_SERVICES = {
    None: None,
    True: "delay router and sequencer: running",
    False: "delay router and sequencer: ended (services.log beside the data says why); "
    "`kafka-pubsub up --exist-ok` starts them again",
}


@click.command(
    cls=Command,
    examples=[
        ("on Kafka's usual port, data kept between runs", "kafka-pubsub up"),
        ("for a test: another port, nothing kept", "kafka-pubsub up --port 19092 --ephemeral"),
        ("in a script: it may run already", "kafka-pubsub up --exist-ok"),
    ],
)
@click.option("--port", type=click.IntRange(1, 65535), help="Port to listen on.  [default: 9092]")
@click.option("--data-dir", type=click.Path(path_type=Path, file_okay=False), help="Where to keep the data.")
@click.option("--ephemeral", is_flag=True, help="Temporary data, deleted by `down`.")
@click.option("--heap-mb", type=int, default=512, show_default=True, help="The broker's memory, in MB.")
@click.option(
    "--exist-ok", is_flag=True, help="Succeed when it is running already, and start services that ended."
)
@click.option(
    "--quick",
    is_flag=True,
    help="For tests: groups don't wait 3 s for further members, and messages may have 10 MiB.",
)
@click.option("--no-services", is_flag=True, help="Start no delay router and no sequencer beside it.")
@click.pass_obj
def up(
    session: Session,
    port: int | None,
    data_dir: Path | None,
    ephemeral: bool,
    heap_mb: int,
    exist_ok: bool,
    quick: bool,
    no_services: bool,
) -> None:
    """Start a real Kafka on this machine and print its address.

    It runs in the background until `kafka-pubsub down`. The first time its parts are fetched (45 MB);
    no Java and no Docker are needed. A delay router and a sequencer run beside it. Its limits are those of a stock
    broker, so that you meet them before production does.
    """
    from kafka_pubsub import local

    with progress(session) as tell:
        started = local.up(
            port=port,
            data_dir=data_dir,
            ephemeral=ephemeral,
            heap_mb=heap_mb,
            exist_ok=exist_ok,
            services=not no_services,
            quick=quick,
            on_progress=tell,
        )
    session.output.result(_as_json(started), f"Kafka is running at {started.bootstrap}")
    kept = "temporary, deleted by `down`" if started.ephemeral else f"kept in {started.data_dir}"
    session.output.note(f"Its data is {kept}. Stop it with `kafka-pubsub down`.")


@click.command(cls=Command, examples=[("", "kafka-pubsub down")])
@click.pass_obj
def down(session: Session) -> None:
    """Stop the embedded Kafka; its data stays, unless it was ephemeral."""
    from kafka_pubsub import local

    with progress(session) as tell:
        before = local.down(on_progress=tell)
    if before.state == "stopped":
        human = "Kafka wasn't running"
    elif before.state == "crashed":
        human = "Kafka had crashed already; cleaned up"
    else:
        human = f"Kafka at {before.bootstrap} is stopped"
    session.output.result({"state": "stopped", "was": _as_json(before)}, human)


@click.command(
    cls=Command,
    examples=[
        ("", "kafka-pubsub status"),
        ("its address, for a script", "kafka-pubsub status --json | jq -r .bootstrap"),
    ],
)
@click.pass_context
def status(ctx: click.Context) -> None:
    """Tell whether the embedded Kafka runs.

    Exit code 0 if it does, 1 if not. If delayed messages wait there and no delay router is running, it says so; with
    --json see `routers` and `delayed_messages_wait`, which are null if the cluster doesn't tell within 5 seconds.
    """
    session = ctx.ensure_object(Session)
    now = session.local_status()
    delays = Delays()
    if now.state == "running":
        delays = look_at_delays(lambda: session.open_pubsub(now.bootstrap, {}, None))
    if session.as_json:
        more = {"routers": delays.routers, "delayed_messages_wait": delays.waiting}
        session.output.details({**_as_json(now), **more})
    elif now.state == "stopped":
        session.output.line("Kafka isn't running; `kafka-pubsub up` starts it")
    else:
        session.output.details(_for_a_person(now))
    if delays.waiting:
        session.output.note(f"Delayed messages wait. {NO_ROUTER}")
    elif delays.routers == 0 and delays.waiting is None:
        session.output.note(f"Whether delayed messages wait isn't known. {NO_ROUTER}")
    if now.state != "running":
        ctx.exit(1)


@contextmanager
def progress(session: Session) -> Iterator[Callable[[str], None]]:
    """Shows what the command waits for: a spinner in a terminal, lines on stderr elsewhere, nothing as JSON."""
    console = stderr_console()
    if session.as_json:
        yield lambda text: None
    elif console.is_terminal:
        with console.status("Getting ready", spinner="dots") as spinner:
            yield spinner.update
    else:
        yield session.output.note


def _started(status: Status) -> str | None:
    if status.started_at is None:
        return None
    return datetime.fromtimestamp(status.started_at, UTC).isoformat(timespec="seconds")


def _as_json(status: Status) -> dict[str, JsonValue]:
    return {
        "state": status.state,
        "bootstrap": status.bootstrap,
        "pid": status.pid,
        "data_dir": None if status.data_dir is None else str(status.data_dir),
        "ephemeral": status.ephemeral,
        "started": _started(status),
        "services": _SERVICES[status.services],
        "problem": None if status.problem is None else in_words_of(status.problem, up),
        "log_tail": list(status.log_tail),
    }


def _for_a_person(status: Status) -> dict[str, JsonValue]:
    shown = _as_json(status)
    shown["pid"] = None if status.pid is None else str(status.pid)
    if status.services is None:
        del shown["services"]
    if status.problem is None:
        del shown["problem"], shown["log_tail"]
    return shown
