"""`kafka-pubsub`: the root command, which turns what a command raises into an exit code.

Rules
1. Every failure leaves through `Root.main`: one line on stderr (one JSON object under `--json`) and an exit code.
2. Nothing here imports librdkafka, pydantic or rich: `--help` and shell completion must feel instant. Commands are
   loaded when they are named, and import what is heavy when they run.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import click

from kafka_pubsub.cli import failures
from kafka_pubsub.cli.command import Group
from kafka_pubsub.cli.context import Session
from kafka_pubsub.services import signals

__all__ = ["cli", "main"]


class Root(Group):
    """The root group: maps every outcome to an exit code."""

    def main(  # type: ignore[override]  # click's overloads promise not to return in standalone mode
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        obj: Session | None = None,
    ) -> int:
        """Runs a command line. In standalone mode it ends with `SystemExit`, as click's own does."""
        arguments = list(sys.argv[1:] if args is None else args)
        session = Session() if obj is None else obj
        try:
            result = super().main(
                arguments,
                prog_name="kafka-pubsub",
                complete_var=complete_var,
                standalone_mode=False,
                obj=session,
            )
            code = result if isinstance(result, int) else failures.OK
        except BaseException as error:
            code = failures.report(error, as_json=session.as_json or _asks_for_json(arguments))
        if standalone_mode:
            raise SystemExit(code)
        return code

    def invoke(self, ctx: click.Context) -> object:
        """Runs the command; a reader of stdout that has closed it (`| head`) isn't reported as a failure."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            failures.silence_stdout()
            ctx.exit(failures.BROKEN_PIPE)
        return result


def _asks_for_json(arguments: Sequence[str]) -> bool:
    # A command line that can't be parsed still has to be answered in the form it asked for.
    before_dashes = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return "--json" in before_dashes


def _print_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if not wanted or ctx.resilient_parsing:
        return
    import importlib.metadata

    version = importlib.metadata.version("kafka-pubsub-orderly")
    session = ctx.ensure_object(Session)
    session.output.result({"version": version}, f"kafka-pubsub {version}")
    ctx.exit()


COMMANDS = {
    "Embedded Kafka": {
        "up": "kafka_pubsub.cli.broker:up",
        "down": "kafka_pubsub.cli.broker:down",
        "status": "kafka_pubsub.cli.broker:status",
        "demo": "kafka_pubsub.cli.demo.command:demo",
    },
    "Topics and subscriptions": {
        "topic": "kafka_pubsub.cli.topics:topic",
        "subscription": "kafka_pubsub.cli.subscriptions:subscription",
    },
    "Messages": {
        "publish": "kafka_pubsub.cli.publish:publish",
        "pull": "kafka_pubsub.cli.pull:pull",
        "peek": "kafka_pubsub.cli.peek:peek",
        "deadletter": "kafka_pubsub.cli.deadletters:deadletter",
        "run": "kafka_pubsub.cli.run:run",
        "delay": "kafka_pubsub.cli.delay:delay",
        "multicast": "kafka_pubsub.cli.multicast:multicast",
    },
    "Tools": {
        "doctor": "kafka_pubsub.cli.doctor:doctor",
        "service": "kafka_pubsub.cli.service:service",
        "worker": "kafka_pubsub.cli.worker:worker",
        "metrics": "kafka_pubsub.cli.metrics:metrics",
        "access": "kafka_pubsub.cli.access:access",
        "schema": "kafka_pubsub.cli.schema:schema",
        "topology": "kafka_pubsub.cli.topology:topology",
        "spark": "kafka_pubsub.cli.spark:spark",
        "bench": "kafka_pubsub.cli.bench:bench",
        "completion": "kafka_pubsub.cli.completion:completion",
    },
}


@click.command(
    cls=Root,
    lazy=COMMANDS,
    aliases={"sub": "subscription"},
    examples=[
        ("see it work", "kafka-pubsub demo"),
        ("a real Kafka on this machine", "kafka-pubsub up"),
        ("", "kafka-pubsub topic create orders --ordering"),
        ("", "kafka-pubsub subscription create billing --topic orders --ordering"),
        ("", "kafka-pubsub publish orders '{\"total\": 12}' --key user-123"),
        ("", "kafka-pubsub pull billing --ack --follow"),
    ],
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Show the version and exit.",
)
def cli() -> None:
    """Pub/Sub on Apache Kafka: ordering keys, acks, deadlines and redelivery.

    Without --bootstrap (or KAFKA_PUBSUB_BOOTSTRAP) a command talks to the embedded Kafka that
    `kafka-pubsub up` started.

    Exit codes: 0 ok, 1 failed, 2 wrong usage; 130 and 143 stopped by Ctrl-C and SIGTERM. KAFKA_PUBSUB_DEBUG=1
    shows tracebacks and the log.
    """


def main() -> None:
    """Runs the console script."""
    signals.raise_on_stop()
    failures.configure_logging(debug=bool(os.environ.get("KAFKA_PUBSUB_DEBUG")))
    cli.main()


if __name__ == "__main__":
    main()
