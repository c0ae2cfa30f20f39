"""The job `telemetry` aggregates readings of devices in windows of time, and publishes alerts to a topic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ..bodies import Bodies, expect_options, schema_option
from ..intervals import INTERVAL
from ..job import Context, Job, Outcome, follow_options, late_options, option, table_options
from ..transforms.protobuf import Protobuf

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from ..streams import Run

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
    late_to: str | None,
    schema: str | Protobuf | None,
    expect: tuple[str, ...],
    rejects: str | None,
    **streaming: Any,
) -> Outcome:
    """Runs the job `telemetry`."""
    if (alert is None) != (alerts_to is None):
        raise click.UsageError("--alert says when and --alerts-to where: give both or neither")
    spark = context.spark()
    from ..late import LATE, Late
    from ..rejects import Rejects, rejects_table
    from ..streams import Streaming, prepare
    from ..tables import Table
    from ..transforms.messages import check_topics
    from ..transforms.telemetry import WINDOWS, chosen, last_of, windows
    from ..transforms.times import with_time

    table = Table(spark, to, WINDOWS, option="--to")
    about = {
        "topics": topic,
        "to": table.address,
        "window": window,
        "fields": ",".join(fields),
        "alerts_to": alerts_to or "",
    }
    if alerts_to is not None:
        check_topics(spark, alerts_to, context.connection)
    bodies = Bodies(schema)
    missed = None if late_to is None else Table(spark, late_to, LATE, option="--late-to")
    tables = [table] if missed is None else [table, missed]
    going = prepare(context, spark, Streaming(**streaming), checkpoint, about, tables, by_time=topic)
    going.computed = (topic, lambda messages: with_time(bodies.decoded(messages, topic), time))
    if missed is not None:
        going.late = Late(missed, *going.computed, last_of(window))
    rejected = Rejects(rejects_table(spark, rejects, table), expect) if expect or schema is not None else None
    messages = bodies.decoded(going.messages(spark, topic), topic)
    if rejected is not None:
        rejected.check_conditions(messages)
    # Expressions are checked before anything is read: a wrong one must not stop the job in its first window.
    found = windows(messages, fields, window=window, late=late, time=time)
    if alert is not None:
        chosen(found, alert)
    kept = messages if rejected is None else rejected.aside(going, messages, checkpoint)
    found = windows(kept, fields, window=window, late=late, time=time)

    def take(batch: DataFrame, number: int) -> None:
        going.append(batch, table, number)
        if alert is not None and alerts_to is not None:
            _publish(batch, alert, alerts_to, going, number)

    going.go_counting(found, take)
    facts = {**going.facts("windows", table.address), "without_time": going.progress.total().untimed}
    text = f"{going.rows:,} windows written to {to}"
    if rejected is not None:
        facts, text = {**facts, **rejected.facts()}, text + rejected.said()
    return Outcome(facts, going.said(text))


def _publish(batch: DataFrame, alert: str, to: str, going: Run, number: int) -> None:
    from pyspark.sql import functions as F

    from ..transforms.outgoing import records, write_records
    from ..transforms.telemetry import alerts

    # Ids are made of the query, the batch and the device's window, so a repeated batch has the same ids.
    name = F.concat_ws("/", F.coalesce("ordering_key", F.lit("")), F.unix_millis("start").cast("string"))
    query = f"telemetry-{going.identity}"
    found = records(alerts(batch, alert), query=query, batch=number, row_id=name, order_by=["start"])
    write_records(found, to, going.context.connection)


JOB = Job(
    "telemetry",
    """Aggregate readings of devices by time, and publish alerts to another topic.

    A reading is JSON with numbers, published with the device as key. Windows go to a Delta table, each once; an alert
    is an ordinary message, with the device as key, and at least once: a repeat has the same ps-id.
    """,
    [
        option(
            "--topic",
            required=True,
            metavar="NAME",
            help="The topic of readings, whose keys say which device each is of. It is read from its beginning.",
        ),
        option(
            "--to",
            required=True,
            metavar="TABLE",
            help="The Delta table of windows: a path, or a name in a catalog (schema.table). It is made if nothing is "
            "there; what kafka-pubsub didn't make is refused.",
        ),
        option(
            "--checkpoint",
            required=True,
            metavar="PATH",
            help="The directory that keeps how far the job has come, and the windows that are open.",
        ),
        option(
            "--field",
            "fields",
            multiple=True,
            required=True,
            metavar="NAME",
            help="A number in a reading, e.g. temp: the table gets temp_min, temp_avg and temp_max. Can be repeated.",
        ),
        option(
            "--window",
            type=INTERVAL,
            default="1 minute",
            show_default=True,
            metavar="INTERVAL",
            help="The length of a window. Each begins when the one before it ends; they are counted from 1970 on, in "
            "UTC.",
        ),
        option(
            "--late",
            type=INTERVAL,
            default="5 minutes",
            show_default=True,
            metavar="INTERVAL",
            help="How much later than the newest reading one may come and still count. A window is written when that "
            "has passed: longer loses less and writes later.",
        ),
        option(
            "--time",
            default="publish_time",
            show_default=True,
            metavar="SQL",
            help="When a reading was made: a SQL expression over a message, e.g. "
            "timestamp_millis(try_cast(get_json_object(cast(data AS string), '$.at') AS bigint)). A reading for which "
            "it is null is left out and counted; one for which it fails ends the job, so use try_cast.",
        ),
        option(
            "--alert",
            metavar="SQL",
            help="Publish the windows of which this holds: a condition over a window's columns, e.g. temp_max > 30. "
            "Default: no alerts.",
        ),
        option(
            "--alerts-to",
            metavar="NAME",
            help="The topic that the windows of --alert are published to. It must exist. Default: none.",
        ),
        schema_option("Messages whose bodies don't fit are rejected, as those of --expect."),
        *expect_options("TO-rejects (TO_rejects for a name)"),
        *late_options(),
        *follow_options(),
        *table_options(),
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
