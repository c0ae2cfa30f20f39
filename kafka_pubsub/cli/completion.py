"""`completion`: the script that completes our commands in a shell."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from kafka_pubsub.cli.command import Command
from kafka_pubsub.cli.context import Session

__all__ = ["completion"]


@click.command(
    cls=Command,
    examples=[
        ("bash, in ~/.bashrc", 'eval "$(kafka-pubsub completion bash)"'),
        ("zsh, in ~/.zshrc", 'eval "$(kafka-pubsub completion zsh)"'),
        ("fish", "kafka-pubsub completion fish > ~/.config/fish/completions/kafka-pubsub.fish"),
    ],
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script of a shell."""
    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"no completion for {shell}", ctx=ctx)
    script = kind(ctx.find_root().command, {}, "kafka-pubsub", "_KAFKA_PUBSUB_COMPLETE").source()
    ctx.ensure_object(Session).output.result({"shell": shell, "script": script}, script)
