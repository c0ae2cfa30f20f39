"""`cdc`: database changes into a Delta table that holds the last state of each key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..job import Context, Job, Outcome, follow_options, option

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["JOB", "run"]


def run(context: Context, *, topic: str, to: str, checkpoint: str, **streaming: Any) -> Outcome:
    """Runs the job."""
    spark = context.spark()
    from ..streams import Streaming, prepare
    from ..transforms.changes import changes, last_states, merge, strange

    going = prepare(context, spark, Streaming(**streaming), checkpoint, {"topics": topic, "to": to})
    problems = f"{to.rstrip('/')}-problems"

    def take(batch: DataFrame, number: int) -> None:
        merge(last_states(changes(batch)), to)
        left = strange(batch)
        if not left.isEmpty():
            going.append(left, problems, number)

    going.go_counting(going.messages(spark, topic), take)
    facts = {**going.facts("messages", to), "problems": problems}
    return Outcome(facts, f"{going.rows:,} changes taken into {to}")


JOB = Job(
    "cdc",
    """Keep the last state of each key of a topic of database changes, in a Delta table.

    A change is JSON, {"action": "INSERT" | "UPDATE" | "DELETE", "data": {...}}, published with the key TABLE:ROW.
    Changes that come again (a replay, a batch that is repeated) change nothing. What isn't a change goes to the table
    TO-problems, with its bytes and the reason.
    """,
    [
        option("--topic", required=True, metavar="NAME"),
        option("--to", required=True, metavar="PATH", help="The Delta table."),
        option("--checkpoint", required=True, metavar="PATH"),
        *follow_options(),
    ],
    [("", "--topic database-changes --to /data/state --checkpoint /data/checkpoints/cdc")],
    run,
)
