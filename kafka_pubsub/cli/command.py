"""Commands and groups of this program: options that work everywhere, examples in the help, lazy loading.

Rules
1. `--json`, `--bootstrap`, `--config` and `--config-file` are accepted before and after every subcommand; the last
   one given wins. A subcommand's help only points at them, so that it stays about the subcommand. After `worker`,
   `--config` is the worker's own.
2. A group alone shows its help.
3. A group lists its commands in the order it was given, not in the alphabet's.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence

import click

from kafka_pubsub.cli.advice import advice
from kafka_pubsub.cli.context import Session
from kafka_pubsub.errors import PubSubError

__all__ = ["Command", "Example", "Group"]

#: What an example shows ("" continues the one above) and the line to type.
Example = tuple[str, str]
#: Section -> command -> "module:attribute".
LazyCommands = Mapping[str, Mapping[str, str]]


def _set_json(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        ctx.ensure_object(Session).as_json = True


def _set_bootstrap(ctx: click.Context, parameter: click.Parameter, value: str | None) -> None:
    if value is None:
        return
    if not value.strip():
        raise click.BadParameter("is empty; give HOST:PORT, or leave it out", ctx=ctx, param=parameter)
    ctx.ensure_object(Session).bootstrap = value


def _set_config(ctx: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> None:
    for item in values:
        name, separator, value = item.partition("=")
        if not separator or not name.strip():
            raise click.BadParameter(f"{item!r} is not KEY=VALUE", ctx=ctx, param=parameter)
        ctx.ensure_object(Session).config[name.strip()] = value


def _set_config_file(ctx: click.Context, parameter: click.Parameter, value: str | None) -> None:
    if value is not None:
        ctx.ensure_object(Session).config_file = value


def _shared_options(root: bool) -> list[click.Option]:
    return [
        click.Option(
            ["--bootstrap", "-b"],
            metavar="HOST:PORT",
            expose_value=False,
            hidden=not root,
            callback=_set_bootstrap,
            help="Kafka's address.  [env: KAFKA_PUBSUB_BOOTSTRAP]",
        ),
        click.Option(
            ["--config"],
            metavar="KEY=VALUE",
            multiple=True,
            expose_value=False,
            hidden=not root,
            callback=_set_config,
            help="A librdkafka setting, e.g. security.protocol=SASL_SSL. Can be repeated.",
        ),
        click.Option(
            ["--config-file"],
            metavar="FILE",
            type=click.Path(dir_okay=False, exists=True),
            expose_value=False,
            hidden=not root,
            callback=_set_config_file,
            help="Settings in the format of Kafka's own tools.  [env: KAFKA_PUBSUB_CONFIG_FILE]",
        ),
        click.Option(
            ["--json"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            hidden=not root,
            callback=_set_json,
            help="JSON on stdout, errors as JSON on stderr.",
        ),
    ]


def _write_examples(formatter: click.HelpFormatter, examples: Sequence[Example]) -> None:
    if not examples:
        return
    formatter.write("\nExamples:\n")
    for what, line in examples:
        if what:
            formatter.write(f"  # {what}\n")
        formatter.write(f"  {line}\n")


class _Shared(click.Command):
    """The options and the help that commands and groups share."""

    examples: Sequence[Example]

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the examples, and the place where the shared options are explained."""
        _write_examples(formatter, self.examples)
        if ctx.parent is not None:
            formatter.write(
                "\n--json, --bootstrap, --config, --config-file work here too: see `kafka-pubsub --help`.\n"
            )


def _others_than(own: Sequence[click.Parameter]) -> list[click.Option]:
    """Returns the shared options without those of which the command has its own."""
    taken = {name for each in own for name in each.opts}
    return [each for each in _shared_options(root=False) if taken.isdisjoint(each.opts)]


class Command(_Shared):
    """A command with examples that takes the shared options."""

    def __init__(
        self,
        name: str | None,
        *,
        examples: Sequence[Example] = (),
        params: list[click.Parameter] | None = None,
        callback: Callable[..., object] | None = None,
        help: str | None = None,
    ) -> None:
        own = params or ()
        super().__init__(name, params=[*own, *_others_than(own)], callback=callback, help=help)
        self.examples = examples

    def invoke(self, ctx: click.Context) -> object:
        """Runs the command; the text of an error gets the words of this command."""
        try:
            return super().invoke(ctx)
        except PubSubError as error:
            error.message = advice(error, self)
            error.calls = ()
            raise


class Group(_Shared, click.Group):
    """A group with examples that takes the shared options and loads commands when they are named."""

    command_class = Command

    def __init__(
        self,
        name: str | None = None,
        *,
        examples: Sequence[Example] = (),
        lazy: LazyCommands | None = None,
        aliases: Mapping[str, str] | None = None,
        params: list[click.Parameter] | None = None,
        callback: Callable[..., object] | None = None,
        help: str | None = None,
    ) -> None:
        shared = _shared_options(root=lazy is not None)
        click.Group.__init__(self, name, params=[*(params or ()), *shared], callback=callback, help=help)
        self.examples = examples
        self._lazy = lazy or {}
        self._places = {
            command: place for section in self._lazy.values() for command, place in section.items()
        }
        self._aliases = aliases or {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Returns the names of the commands in the order in which they were given."""
        return [*self._places, *self.commands]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Returns a command; loads it first if it isn't loaded."""
        name = self._aliases.get(cmd_name, cmd_name)
        if name not in self.commands and name in self._places:
            module, _, attribute = self._places[name].partition(":")
            command = getattr(importlib.import_module(module), attribute)
            if not isinstance(command, click.Command):
                raise TypeError(f"{self._places[name]} is not a command")
            return command
        return super().get_command(ctx, name)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parses arguments; without any it shows the help, and fails because nothing was done."""
        if not args and not ctx.resilient_parsing:
            click.echo(ctx.get_help(), err=True)
            ctx.exit(2)
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolves an alias to the command's own name, which usage and errors then show."""
        name, command, rest = super().resolve_command(ctx, args)
        return (command.name if command is not None else name), command, rest

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the commands, with a section for each heading."""
        if not self._lazy:
            super().format_commands(ctx, formatter)
            return
        width = max(map(len, self._places))
        for heading, section in self._lazy.items():
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(width), self._short_help(ctx, name)) for name in section])

    def _short_help(self, ctx: click.Context, name: str) -> str:
        command = self.get_command(ctx, name)
        return "" if command is None else command.get_short_help_str(limit=70)
