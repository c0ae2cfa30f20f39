"""`cdc`: database changes into a Delta table that holds the last state of each key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ..job import Context, Job, Outcome, follow_options, option, table_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from ..transforms.changes import Envelope

__all__ = ["JOB", "run"]


def run(
    context: Context, *, topic: str, to: str, checkpoint: str, envelope: Envelope, **streaming: Any
) -> Outcome:
    """Runs the job."""
    spark = context.spark()
    from ..streams import Streaming, prepare
    from ..tables import Table
    from ..transforms.changes import NEWER, PROBLEMS, SAME_ROW, STATES, changes, last_states, strange

    states = Table(spark, to, STATES, option="--to")
    problems = states.beside("problems", PROBLEMS)
    about = {"topics": topic, "to": states.place, "envelope": envelope}
    going = prepare(context, spark, Streaming(**streaming), checkpoint, about, [states, problems])

    def take(batch: DataFrame, number: int) -> None:
        states.merge(last_states(changes(batch, envelope)), SAME_ROW, NEWER, going.identity, number)
        left = strange(batch, envelope)
        if not left.isEmpty():
            going.append(left, problems, number)

    going.go_counting(going.messages(spark, topic), take)
    facts = {**going.facts("messages", states.place), "problems": problems.place}
    return Outcome(facts, going.said(f"{going.rows:,} changes taken into {to}"))


JOB = Job(
    "cdc",
    """Keep the last state of each key of a topic of database changes, in a Delta table.

    The key of a message says which row it changes, and its body is JSON, by --envelope. A message without a body says
    that the row is gone.
    Changes that come again (a replay, a batch that is repeated) change nothing. What isn't a change goes to the table
    TO-problems (TO_problems for a name), with its bytes and the reason.
    """,
    [
        option("--topic", required=True, metavar="NAME", help="The topic of changes."),
        option(
            "--to",
            required=True,
            metavar="TABLE",
            help="The Delta table of last states: a path, or a name in a catalog (schema.table). It is made if nothing "
            "is there; what kafka-pubsub didn't make is refused.",
        ),
        option(
            "--checkpoint",
            required=True,
            metavar="PATH",
            help="The directory that keeps how far the job has come. One for each command.",
        ),
        option(
            "--envelope",
            type=click.Choice(["action", "debezium", "row"]),
            default="action",
            show_default=True,
            help='How a body says what the row is now. action: {"action": "INSERT" | "UPDATE" | "DELETE", "data": '
            '{...}}. debezium: {"op": "c" | "u" | "d" | "r", "after": {...}}, in `payload` or by itself. row: the row '
            "as a JSON object (plain upserts).",
        ),
        *follow_options(),
        *table_options(),
    ],
    [
        ("", "--topic database-changes --to /data/state --checkpoint /data/checkpoints/cdc"),
        (
            "a topic of Debezium",
            "--topic shop.public.orders --to /data/orders --checkpoint /data/checkpoints/orders --envelope debezium",
        ),
    ],
    run,
)
