"""The program for spark-submit, whose arguments are the name of a job and the job's options.

`kafka-pubsub spark submit-args` prints the path of this file and the packages that it needs. With `--zip` that command
also makes the zip that drivers and nodes need where this package isn't installed.

Rule: with that zip this file runs wherever Spark puts it, alone in a directory of any name (`--deploy-mode cluster`).
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import click

    from .run.job import Job


#: The package's name in the zip, and where it is installed.
_INSTALLED = "kafka_pubsub_spark"


def _package() -> str:
    """Returns this package's name, and makes it importable where this file was started as a program."""
    if __package__:
        return __package__
    here = Path(__file__).resolve().parent
    # Python searches the directory of a started file first; our modules must only be found by their full names.
    sys.path[:] = [each for each in sys.path if Path(each or ".").resolve() != here]
    if importlib.util.find_spec(_INSTALLED) is not None:
        return _INSTALLED
    if not (here / "run").is_dir():
        raise SystemExit(
            f"error: the package {_INSTALLED} isn't there: make its zip (kafka-pubsub spark submit-args --zip FILE) "
            "and name it with --py-files"
        )
    sys.path.insert(0, str(here.parent))
    return here.name


def command(job: Job) -> click.Command:
    """Makes a command of a job."""
    import click

    own = importlib.import_module(f"{_package()}.run.job")
    connection = importlib.import_module(f"{_package()}.base.connection")

    def run(bootstrap: str | None, config: tuple[str, ...], as_json: bool, **options: Any) -> None:
        context = own.Context(
            job.name,
            connection.connection_of(bootstrap, own.pairs(config, "--config")),
            lambda text: click.echo(text, err=True),
            options.pop("master"),
            own.pairs(options.pop("conf"), "--conf"),
            options.pop("metrics_port"),
        )
        outcome = own.execute(job, context, options)
        click.echo(json.dumps(outcome.facts, default=str) if as_json else outcome.text)
        raise SystemExit(0 if outcome.ok else 1)

    more = [
        own.option(
            "--bootstrap", "-b", metavar="HOST:PORT", help="Kafka's address. Default: KAFKA_PUBSUB_BOOTSTRAP."
        ),
        own.option("--config", multiple=True, metavar="KEY=VALUE", help="A setting of Kafka's Java client."),
        own.option("--json", "as_json", is_flag=True, help="Print the outcome as one JSON object."),
    ]
    return click.Command(job.name, params=[*job.parameters(), *more], callback=run, help=job.help)


def main(arguments: list[str]) -> None:
    """Runs the job that the first argument names."""
    own = importlib.import_module(f"{_package()}.run.job")
    import click

    errors = importlib.import_module("kafka_pubsub.errors")
    group = click.Group("submit.py", {name: command(own.find(name)) for name in own.JOBS})
    try:
        group.main(arguments, prog_name="submit.py", standalone_mode=True)
    except errors.PubSubError as error:
        click.echo(f"error: {error.message}", err=True)
        raise SystemExit(1) from None


if __name__ == "__main__":
    main(sys.argv[1:])
