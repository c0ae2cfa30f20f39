"""`access`: the rights that programs need, for clusters with access rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import click

from kafka_pubsub.cli.command import Command
from kafka_pubsub.cli.context import Session

__all__ = ["EXTRAS", "ROLES", "access", "access_options"]

#: As `kafka_pubsub.access.rights`, which a test compares: a command's help must be quick.
ROLES: Final = ("publisher", "subscriber", "admin", "router", "sequencer", "monitor", "spark")
EXTRAS: Final = ("delays", "causal", "dead-letters", "replay")


_OPTIONS = (
    click.option("--topic", "topics", multiple=True, help="A topic with which it works. Can be repeated."),
    click.option("--subscription", default="", help="The subscription that it has."),
    click.option("--dead-letter", default="", help="The dead-letter topic of the subscription."),
    click.option(
        "--with",
        "extras",
        type=click.Choice(EXTRAS),
        multiple=True,
        help="What it does besides: delays, causal topics, dead letters, replaying them. Can be repeated.",
    ),
)


def access_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options that say with which topics and subscription a program works."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@click.command(
    cls=Command,
    examples=[
        (
            "for Kafka's own tool",
            "kafka-pubsub access publisher --topic orders --principal User:shop",
        ),
        (
            "for Strimzi",
            "kafka-pubsub access subscriber --topic orders --subscription billing --for strimzi",
        ),
    ],
)
@click.argument("role", type=click.Choice(ROLES))
@access_options
@click.option(
    "--for",
    "tool",
    type=click.Choice(["kafka-acls", "strimzi"]),
    default="kafka-acls",
    show_default=True,
    help="The form: commands of Kafka's own tool, or a KafkaUser.",
)
@click.option("--principal", help="To whom the rights are granted.  [default: User:ROLE]")
@click.pass_obj
def access(
    session: Session,
    role: str,
    topics: tuple[str, ...],
    subscription: str,
    dead_letter: str,
    extras: tuple[str, ...],
    tool: str,
    principal: str | None,
) -> None:
    """Print the rights that a program in ROLE needs.

    They are the least that is enough on a cluster with access rules. It talks to no cluster: --bootstrap and
    --config-file say how the commands connect.
    """
    from kafka_pubsub.access.rendering import render_commands, render_user
    from kafka_pubsub.access.rights import Access, rules_of

    rules = rules_of(role, Access(topics, subscription, dead_letter, extras))
    user = principal or f"User:{role}"
    if session.as_json:
        session.output.result([{**each._asdict(), "operations": list(each.operations)} for each in rules], "")
    elif tool == "strimzi":
        session.output.line(render_user(rules, user).rstrip("\n"))
    else:
        commands = render_commands(rules, user, session.bootstrap, command_config=session.config_file)
        session.output.line(commands.rstrip("\n"))
