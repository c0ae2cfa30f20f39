"""The job `sessions` groups users' events into sessions and publishes these to another topic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ..bodies import Bodies, expect_options, schema_option
from ..intervals import INTERVAL
from ..job import Context, Job, Outcome, follow_options, late_options, option
from ..transforms.protobuf import Protobuf

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["JOB", "run"]


def run(
    context: Context,
    *,
    topic: str,
    to: str,
    checkpoint: str,
    gap: float,
    late: str,
    time: str,
    late_to: str | None,
    schema: str | Protobuf | None,
    expect: tuple[str, ...],
    rejects: str | None,
    **streaming: Any,
) -> Outcome:
    """Runs the job `sessions`."""
    spark = context.spark()
    from pyspark.sql import functions as F

    from ..late import LATE, Late
    from ..rejects import Rejects, rejects_table
    from ..streams import Streaming, prepare
    from ..tables import Table
    from ..transforms.messages import check_topics
    from ..transforms.outgoing import records, write_records
    from ..transforms.user_session_state import sessions
    from ..transforms.user_sessions import as_messages, events, timed_events

    check_topics(spark, to, context.connection)
    about = {"topics": topic, "to": to, "gap": f"{gap:g}"}
    bodies = Bodies(schema)
    missed = None if late_to is None else Table(spark, late_to, LATE, option="--late-to")
    tables = [] if missed is None else [missed]
    going = prepare(context, spark, Streaming(**streaming), checkpoint, about, tables, by_time=topic)
    going.computed = (topic, lambda messages: timed_events(bodies.decoded(messages, topic), time=time))
    if missed is not None:
        going.late = Late(missed, *going.computed, F.col("time"))
    rejected = (
        Rejects(rejects_table(spark, rejects, checkpoint), expect) if expect or schema is not None else None
    )
    messages = bodies.decoded(going.messages(spark, topic), topic)
    # Expressions are checked before anything is read: a wrong one must not stop the job later.
    events(messages, late=late, time=time)
    kept = messages if rejected is None else rejected.aside(going, messages, checkpoint)

    def take(batch: DataFrame, number: int) -> None:
        # Ids are made of the query, the batch and the user's session, so a repeated batch has the same ids.
        name = F.concat_ws("/", "ordering_key", F.col("started").cast("string"))
        query = f"sessions-{going.identity}"
        found = records(as_messages(batch), query=query, batch=number, row_id=name, order_by=["started"])
        write_records(found, to, context.connection)

    going.go_counting(sessions(events(kept, late=late, time=time), int(gap * 1000)), take)
    facts, text = going.facts("sessions", to), f"{going.rows:,} sessions published to {to}"
    if rejected is not None:
        facts, text = {**facts, **rejected.facts()}, text + rejected.said()
    return Outcome(facts, going.said(text))


JOB = Job(
    "sessions",
    """Put users' events together into sessions, and publish each session that ended to another topic.

    An event is JSON with a type (login, page_view, logout ...), published with the user as key. A session ends with a
    logout or after --gap seconds without an event. Subscribers of --to get it like any message, at least once: a
    repeat has the same ps-id.
    """,
    [
        option(
            "--topic",
            required=True,
            metavar="NAME",
            help="The topic of events. It is read from its beginning, and from there on where the checkpoint says.",
        ),
        option(
            "--to",
            required=True,
            metavar="NAME",
            help="The topic that sessions are published to, with the user as key. It must exist.",
        ),
        option(
            "--checkpoint",
            required=True,
            metavar="PATH",
            help="The directory that keeps how far the job has come, and the sessions that are open.",
        ),
        option(
            "--gap",
            type=click.FloatRange(min=0.001),
            default=1800,
            show_default=True,
            metavar="SECONDS",
            help="A session ends when its user sends no event for so many seconds. It is part of the checkpoint: with "
            "another one begin another checkpoint.",
        ),
        option(
            "--late",
            type=INTERVAL,
            default="5 minutes",
            show_default=True,
            metavar="INTERVAL",
            help="How much later than the newest event one may come and still count. A session is published when that "
            "and --gap have passed: longer loses less and publishes later.",
        ),
        option(
            "--time",
            default="publish_time",
            show_default=True,
            metavar="SQL",
            help="When an event happened: a SQL expression over a message, e.g. "
            "timestamp_millis(try_cast(get_json_object(cast(data AS string), '$.timestamp') AS bigint)). An event "
            "for which it fails ends the job, so use try_cast.",
        ),
        schema_option("Messages whose bodies don't fit are rejected, as those of --expect."),
        *expect_options("CHECKPOINT-rejects-table"),
        *late_options(),
        *follow_options(),
    ],
    [("", "--topic user-events --to user-sessions --checkpoint /data/checkpoints/sessions --follow")],
    run,
)
