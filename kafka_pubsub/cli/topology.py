"""`topology`: the topics of delayed delivery as code."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from kafka_pubsub.cli.command import Command, Group
from kafka_pubsub.cli.context import Session
from kafka_pubsub.cli.output import JsonValue

if TYPE_CHECKING:
    from kafka_pubsub.delays.plan import Change

__all__ = ["topology"]

FILE = click.option(
    "--file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The declaration, a JSON file.  [default: 28 tiers, 12 partitions, the broker's replication]",
)


@click.group(
    cls=Group,
    examples=[
        ("what would be done", "kafka-pubsub topology plan --file delays.json"),
        ("do it", "kafka-pubsub topology apply --file delays.json"),
        ("for Terraform", "kafka-pubsub topology render terraform > main.tf.json"),
    ],
)
def topology() -> None:
    """Make and check the topics of delays from one declaration.

    The declaration has the fields tiers, partitions, replication and settings; each may be left out.
    """


@topology.command(
    cls=Command,
    examples=[
        ("", "kafka-pubsub topology plan"),
        (
            "in CI: exit code 1 if the cluster differs",
            "kafka-pubsub topology plan --file delays.json --check",
        ),
    ],
)
@FILE
@click.option("--check", is_flag=True, help="End with exit code 1 if anything differs.")
@click.pass_context
def plan(ctx: click.Context, file: Path | None, check: bool) -> None:
    """Show what differs between the cluster and the declaration; change nothing."""
    from kafka_pubsub.delays.declaration import read_declaration

    session = ctx.ensure_object(Session)
    declaration = read_declaration(file)
    with session.pubsub() as pubsub:
        wanted = pubsub._cluster.topology
        changes = wanted.plan(declaration)
    session.output.table([_row(each) for each in changes], ("change", "topic", "what"), "Nothing differs.")
    if wanted.growing:
        session.output.note(f"Note: {wanted.growing}.")
    if check and changes:
        ctx.exit(1)


@topology.command(
    cls=Command,
    examples=[
        ("", "kafka-pubsub topology apply"),
        ("as a file says", "kafka-pubsub topology apply --file delays.json"),
    ],
)
@FILE
@click.pass_obj
def apply(session: Session, file: Path | None) -> None:
    """Make the topics that are missing, set the settings that differ, add partitions.

    It can be repeated. It deletes nothing. Partitions are added while messages wait; their number must be a multiple.
    Apply again when nothing from before waits any more: that ends the growth, and allows the next one.
    """
    from kafka_pubsub.delays.declaration import read_declaration

    declaration = read_declaration(file)
    with session.pubsub() as pubsub:
        wanted = pubsub._cluster.topology
        changes = wanted.apply(
            declaration, lambda change: session.output.note(f"{change.topic}: {change.text}")
        )
    session.output.result([_row(each) for each in changes], f"{len(changes)} changes made")
    if wanted.growing:
        session.output.note(f"Note: {wanted.growing}.")


@topology.command(
    cls=Command,
    examples=[
        ("", "kafka-pubsub topology render terraform > main.tf.json"),
        ("", "kafka-pubsub topology render strimzi --file delays.json | kubectl apply -f -"),
    ],
)
@click.argument("tool", type=click.Choice(["terraform", "strimzi", "json"]))
@FILE
@click.pass_obj
def render(session: Session, tool: str, file: Path | None) -> None:
    """Print the topics for TOOL: a Terraform module, Strimzi resources, or the declaration itself."""
    from kafka_pubsub.delays.declaration import read_declaration
    from kafka_pubsub.delays.rendering import render_strimzi, render_terraform

    declaration = read_declaration(file)
    if tool == "terraform":
        text = render_terraform(declaration)
    elif tool == "strimzi":
        text = render_strimzi(declaration)
    else:
        text = declaration.model_dump_json(indent=2) + "\n"
    session.output.line(text.rstrip("\n"))


def _row(change: Change) -> dict[str, JsonValue]:
    return {"change": change.kind.value, "topic": change.topic, "what": change.text}
