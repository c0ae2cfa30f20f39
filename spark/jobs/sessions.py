"""`sessions`: users' events into sessions, published to another topic."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import click

from ..intervals import INTERVAL
from ..job import Context, Job, Outcome, follow_options, late_options, option

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
    **streaming: Any,
) -> Outcome:
    """Runs the job."""
    spark = context.spark()
    from pyspark.sql import functions as F

    from ..late import LATE, Late
    from ..streams import Streaming, prepare
    from ..tables import Table
    from ..transforms.messages import check_topics
    from ..transforms.outgoing import records, write_records
    from ..transforms.sessions import as_messages, events, sessions, timed_events

    check_topics(spark, to, context.place)
    about = {"topics": topic, "to": to, "gap": f"{gap:g}"}
    kept = None if late_to is None else Table(spark, late_to, LATE, option="--late-to")
    tables = [] if kept is None else [kept]
    going = prepare(context, spark, Streaming(**streaming), checkpoint, about, tables, by_time=topic)
    if kept is not None:
        going.late = Late(kept, topic, partial(timed_events, time=time), F.col("time"))

    def take(batch: DataFrame, number: int) -> None:
        # Query, batch, and the user's session: a batch that is repeated has the same ids.
        name = F.concat_ws("/", "ordering_key", F.col("started").cast("string"))
        query = f"sessions-{going.identity}"
        found = records(as_messages(batch), query=query, batch=number, row_id=name, order_by=["started"])
        write_records(found, to, context.place)

    found = events(going.messages(spark, topic), late=late, time=time)
    going.go_counting(sessions(found, int(gap * 1000)), take)
    return Outcome(going.facts("sessions", to), going.said(f"{going.rows:,} sessions published to {to}"))


JOB = Job(
    "sessions",
    """Put users' events together into sessions, and publish each session that ended to another topic.

    An event is JSON with a type (login, page_view, logout ...), published with the user as key. A session ends with a
    logout or after --gap seconds without an event. Subscribers of --to get it like any message, at least once: a
    repeat has the same ps-id.
    """,
    [
        option("--topic", required=True, metavar="NAME", help="The topic of events."),
        option("--to", required=True, metavar="NAME", help="The topic that sessions are published to."),
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
            help="A session ends when its user sends no event for so many seconds.",
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
            "timestamp_millis(cast(get_json_object(cast(data AS string), '$.timestamp') AS bigint)).",
        ),
        *late_options(),
        *follow_options(),
    ],
    [("", "--topic user-events --to user-sessions --checkpoint /data/checkpoints/sessions --follow")],
    run,
)
