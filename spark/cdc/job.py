"""The job `cdc` writes database changes to a Delta table that holds the last state of each key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kafka_pubsub.errors import FailedPrecondition

from ..reading.protobuf import Protobuf
from ..run.bodies import expect_options, schema_option
from ..run.job import Context, Job, Outcome, follow_options, option, table_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from .changes import Envelope

__all__ = ["JOB", "run"]


def run(
    context: Context,
    *,
    topic: str,
    to: str,
    checkpoint: str,
    envelope: Envelope,
    schema: str | Protobuf | None,
    expect: tuple[str, ...],
    rejects: str | None,
    sequence_by: str | None,
    **streaming: Any,
) -> Outcome:
    """Runs the job `cdc`."""
    if isinstance(schema, Protobuf) or (schema or "").lstrip().startswith(("{", "[", '"')):
        raise click.UsageError("--schema are the columns of a row here, e.g. 'id bigint, amount double'")
    spark = context.spark()
    from pyspark.sql import functions as F

    from ..base.tables import Table
    from ..run.rejects import Rejects, rejects_table
    from ..run.streams import Streaming, prepare
    from . import changes
    from .changes import SAME_ROW, STATES, last_states, states

    table = Table(spark, to, STATES, option="--to")
    rejected = Rejects(rejects_table(spark, rejects, table), expect)
    about = {"topics": topic, "to": table.address, "envelope": envelope}
    about |= {} if sequence_by is None else {"sequence_by": sequence_by}
    newer = changes.NEWER if sequence_by is None else changes.NEWER_BY_SEQUENCE
    going = prepare(context, spark, Streaming(**streaming), checkpoint, about, [table, rejected.table])
    if sequence_by is None and table.query() is not None and "sequence" in table.read().columns:
        raise FailedPrecondition(f"{table.address} was written with --sequence-by: give it here as well")
    messages = going.messages(spark, topic)

    def told(messages: DataFrame) -> DataFrame:
        found = changes.told(messages, envelope, schema)
        return found if sequence_by is None else changes.sequenced(found, sequence_by)

    # Expressions are checked before anything is read: a wrong one must not stop the job in its first batch.
    rejected.check_conditions(told(messages))

    def take(batch: DataFrame, number: int) -> None:
        found = told(batch)
        # A row that was deleted has no columns that a condition could check.
        kept = rejected.taken(going, found, number, unless=F.col("deleted"))
        found = states(kept, going.topic_id(kept["origin.topic"]))
        table.merge(last_states(found), SAME_ROW, newer, going.identity, number)

    going.go_counting(messages, take)
    facts = {**going.facts("messages", table.address), **rejected.facts()}
    return Outcome(facts, going.said(f"{going.rows:,} changes taken into {to}{rejected.said()}"))


JOB = Job(
    "cdc",
    """Keep the last state of each key of a topic of database changes, in a Delta table.

    The key of a message says which row it changes, and its body is JSON, by --envelope. A message without a body says
    that the row is gone.
    Changes that come again (a replay, a batch that is repeated) change nothing. What isn't a change, and what --expect
    doesn't hold of, goes to the table of --rejects, with its bytes and the reason.
    """,
    [
        option(
            "--topic",
            required=True,
            metavar="NAME",
            help="The topic of changes, whose keys say which row each changes. It is read from its beginning.",
        ),
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
            help="The directory that keeps how far the job has come: start the same command again, and it goes on "
            "there. "
            "One for each command.",
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
        option(
            "--sequence-by",
            metavar="SQL",
            help="A number in each change by which the database orders the changes of a row, e.g. "
            "get_json_object(cast(data AS string), '$.source.lsn'): the greater one wins, wherever and whenever it was "
            "published. A change without one is rejected. Default: changes are ordered by their place in the topic.",
        ),
        schema_option("Here: the columns of a row in JSON. What doesn't fit is rejected."),
        *expect_options("TO-rejects (TO_rejects for a name)"),
        *follow_options(),
        *table_options(),
    ],
    [
        ("", "--topic database-changes --to /data/state --checkpoint /data/checkpoints/cdc"),
        (
            "a topic of Debezium",
            "--topic shop.public.orders --to /data/orders --checkpoint /data/checkpoints/orders --envelope debezium",
        ),
        (
            "only rows that can be right",
            "--topic shop.public.orders --to /data/orders --checkpoint /data/checkpoints/orders --envelope debezium "
            "--schema 'id bigint, amount double' --expect 'amount >= 0'",
        ),
    ],
    run,
)
