"""`sessions`: users' events into sessions, published to another topic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ..job import Context, Job, Outcome, follow_options, option

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
    **streaming: Any,
) -> Outcome:
    """Runs the job."""
    spark = context.spark()
    from pyspark.sql import functions as F

    from ..streams import Streaming, prepare
    from ..transforms.messages import check_topics
    from ..transforms.outgoing import records, write_records
    from ..transforms.sessions import as_messages, events, sessions

    check_topics(spark, to, context.place)
    about = {"topics": topic, "to": to, "gap": f"{gap:g}"}
    going = prepare(context, spark, Streaming(**streaming), checkpoint, about)

    def take(batch: DataFrame, _: int) -> None:
        # A user's session is told once, by its beginning: a repeat has the same id.
        name = F.concat_ws("/", "ordering_key", F.col("started").cast("string"))
        found = records(as_messages(batch), query="sessions", row_id=name, order_by=["started"])
        write_records(found, to, context.place)

    found = events(going.messages(spark, topic), late=late, time=time)
    going.go_counting(sessions(found, int(gap * 1000)), take)
    return Outcome(going.facts("sessions", to), f"{going.rows:,} sessions published to {to}")


JOB = Job(
    "sessions",
    """Put users' events together into sessions, and publish each session that ended to another topic.

    An event is JSON with a type (login, page_view, logout ...), published with the user as key. A session ends with a
    logout or after --gap seconds without an event. Subscribers of --to get it like any message, at least once: a
    repeat has the same ps-id.
    """,
    [
        option("--topic", required=True, metavar="NAME"),
        option("--to", required=True, metavar="NAME", help="The topic of sessions."),
        option("--checkpoint", required=True, metavar="PATH"),
        option(
            "--gap",
            type=click.FloatRange(min=0.001),
            default=1800,
            show_default=True,
            metavar="SECONDS",
            help="Silence.",
        ),
        option(
            "--late",
            default="5 minutes",
            show_default=True,
            metavar="INTERVAL",
            help="How late one may come.",
        ),
        option("--time", default="publish_time", show_default=True, metavar="SQL", help="When it happened."),
        *follow_options(),
    ],
    [("", "--topic user-events --to user-sessions --checkpoint /data/checkpoints/sessions --follow")],
    run,
)
