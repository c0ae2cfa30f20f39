"""`telemetry`: readings of devices into windows, and alerts published back."""

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
    fields: tuple[str, ...],
    window: str,
    late: str,
    time: str,
    alert: str | None,
    alerts_to: str | None,
    **streaming: Any,
) -> Outcome:
    """Runs the job."""
    if (alert is None) != (alerts_to is None):
        raise click.UsageError("--alert says when and --alerts-to where: give both or neither")
    spark = context.spark()
    from ..streams import Streaming, prepare
    from ..transforms.messages import check_topics
    from ..transforms.telemetry import windows

    about = {
        "topics": topic,
        "to": to,
        "window": window,
        "fields": ",".join(fields),
        "alerts_to": alerts_to or "",
    }
    if alerts_to is not None:
        check_topics(spark, alerts_to, context.place)
    going = prepare(context, spark, Streaming(**streaming), checkpoint, about)

    def take(batch: DataFrame, number: int) -> None:
        going.append(batch, to, number)
        if alert is not None and alerts_to is not None:
            _publish(batch, alert, alerts_to, context)

    found = windows(going.messages(spark, topic), fields, window=window, late=late, time=time)
    going.go_counting(found, take)
    return Outcome(going.facts("windows", to), f"{going.rows:,} windows written to {to}")


def _publish(batch: DataFrame, alert: str, to: str, context: Context) -> None:
    from pyspark.sql import functions as F

    from ..transforms.outgoing import records, write_records
    from ..transforms.telemetry import alerts

    # A window of a device is told once, so that names the alert: a repeat has the same id.
    name = F.concat_ws("/", F.coalesce("ordering_key", F.lit("")), F.unix_millis("start").cast("string"))
    found = records(alerts(batch, alert), query="telemetry", row_id=name, order_by=["start"])
    write_records(found, to, context.place)


JOB = Job(
    "telemetry",
    """Aggregate readings of devices by time, and publish alerts to another topic.

    A reading is JSON with numbers, published with the device as key. Windows go to a Delta table, each once; an alert
    is an ordinary message, with the device as key, and at least once: a repeat has the same ps-id.
    """,
    [
        option("--topic", required=True, metavar="NAME"),
        option("--to", required=True, metavar="PATH", help="The Delta table of windows."),
        option("--checkpoint", required=True, metavar="PATH"),
        option(
            "--field",
            "fields",
            multiple=True,
            required=True,
            metavar="NAME",
            help="A number. Can be repeated.",
        ),
        option("--window", default="1 minute", show_default=True, metavar="INTERVAL"),
        option(
            "--late",
            default="5 minutes",
            show_default=True,
            metavar="INTERVAL",
            help="How late a reading may come.",
        ),
        option("--time", default="publish_time", show_default=True, metavar="SQL", help="When it was read."),
        option("--alert", metavar="SQL", help="Over a window's columns, e.g. temp_max > 30."),
        option("--alerts-to", metavar="NAME", help="The topic that alerts are published to."),
        *follow_options(),
    ],
    [
        (
            "warm devices",
            "--topic device-telemetry --to /data/windows --checkpoint /data/checkpoints/telemetry --field temp "
            "--alert 'temp_max > 30' --alerts-to alerts --follow",
        )
    ],
    run,
)
