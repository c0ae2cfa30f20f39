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
    from ..transforms.messages import messages

    stream = Streaming(**streaming)
    going = prepare(context, spark, stream, checkpoint, {"topics": topic, "to": to})
    problems = f"{to.rstrip('/')}-problems"

    def take(batch: DataFrame, number: int) -> int:
        batch.persist()
        try:
            merge(last_states(changes(batch)), to)
            # By the batch's number Delta knows what it has, so a repeat adds nothing.
            options = {"txnAppId": going.identity, "txnVersion": str(number)}
            left = strange(batch)
            if not left.isEmpty():
                left.write.format("delta").mode("append").options(**options).save(problems)
            return batch.count()
        finally:
            batch.unpersist()

    found = messages(
        spark,
        topic,
        bootstrap=context.place.bootstrap,
        config=context.place.config,
        stream=True,
        max_per_batch=stream.max_per_batch,
        lost=stream.lost,
    )
    going.go(found, take)
    facts = {
        "batches": going.batches,
        "messages": going.rows,
        "lost": going.lost,
        "to": to,
        "problems": problems,
    }
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
