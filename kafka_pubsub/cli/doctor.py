"""`doctor`: whether this client can work with the cluster, and what mends what is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kafka_pubsub.cli.access import ROLES, access_options
from kafka_pubsub.cli.command import Command
from kafka_pubsub.cli.context import Session

if TYPE_CHECKING:
    from kafka_pubsub.cli.examination import Finding

__all__ = ["doctor"]


@click.command(
    cls=Command,
    examples=[
        ("the cluster of the environment", "kafka-pubsub doctor"),
        (
            "with the rights of a program",
            "kafka-pubsub doctor --role subscriber --topic orders --subscription billing",
        ),
    ],
)
@click.option(
    "--role", type=click.Choice(ROLES), help="Look at the rights that a program in this role needs."
)
@access_options
@click.pass_context
def doctor(
    ctx: click.Context,
    role: str | None,
    topics: tuple[str, ...],
    subscription: str,
    dead_letter: str,
    extras: tuple[str, ...],
) -> None:
    """Say whether this machine can work with the cluster.

    It looks at address, login, versions, rights, transactions, settings, clocks and services. Each line is ok, or has
    the command that mends it. It changes nothing, and ends within a minute. Ends with 1 if something is wrong.
    """
    from kafka_pubsub.access.rights import Access, rules_of
    from kafka_pubsub.cli.examination import examine

    session = ctx.ensure_object(Session)
    access = Access(topics, subscription, dead_letter, extras)
    rules = rules_of(role, access) if role else []
    findings: list[Finding] = []
    with session.pubsub() as pubsub:
        for each in examine(pubsub, role, rules, session.config_file):
            findings.append(each)
            if not session.as_json:
                _say(session, each)
    if session.as_json:
        session.output.result([each._asdict() for each in findings], "")
    if not all(each.ok for each in findings):
        ctx.exit(1)


def _say(session: Session, finding: Finding) -> None:
    session.output.line(f"{'ok  ' if finding.ok else 'FAIL'}  {finding.check}: {finding.says}")
    if finding.mend:
        session.output.line(f"      {finding.mend}")
