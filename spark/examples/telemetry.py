"""Aggregates devices' readings in windows of time into a Delta table, and publishes alerts.

    python telemetry.py --bootstrap localhost:9092 --topic device-telemetry --to /data/windows --alerts-to alerts

A reading is JSON like {"temp": 20.5}, published with the device as ordering key. A window is written once, when the
watermark has passed its end. An alert is published at least once; one that is published again has the same `ps-id`.
Readings that can't be used (no number, no time) go to the table TO-rejected, with their place and the reason. Readings
that come later than LATE after the newest one are left out, and counted.
"""

from __future__ import annotations

import argparse
from typing import Any

from kafka_pubsub_spark import check_checkpoint, decoded, messages, session, split, write_stream
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

#: The fields of a reading, and when it was made: SQL over a message and its `record`, such as
#: "timestamp_millis(record.at)".
SCHEMA, TIME = "temp double, humidity double, at bigint", "publish_time"
WINDOW, LATE = "1 minute", "5 minutes"
#: A condition over a window.
ALERT = "temp_max > 30"


def readings(found: DataFrame, time: str = TIME) -> tuple[DataFrame, DataFrame]:
    """Splits messages into readings and those that can't be used."""
    known = decoded(found, SCHEMA)
    return split(known, ["ordering_key is not null", "temp is not null", f"({time}) is not null"])


def windows(kept: DataFrame, time: str = TIME, window: str = WINDOW, late: str = LATE) -> DataFrame:
    """Computes for each window and device how many readings there are, and the least, mean and greatest value."""
    timed = kept.select("ordering_key", "record.temp", F.expr(time).alias("time")).withWatermark("time", late)
    values = [
        F.min("temp").alias("temp_min"),
        F.avg("temp").alias("temp_avg"),
        F.max("temp").alias("temp_max"),
    ]
    found = timed.groupBy(F.window("time", window), "ordering_key").agg(
        F.count("*").alias("readings"), *values
    )
    return found.select("ordering_key", "window.start", "window.end", *found.columns[2:])


def alerts(found: DataFrame, condition: str = ALERT) -> DataFrame:
    """Makes a message of each window of which the condition holds."""
    return found.where(condition).select(
        "ordering_key",
        F.to_json(F.struct("*")).alias("data"),
        F.create_map(F.lit("kind"), F.lit("alert")).alias("attributes"),
        "start",
    )


def append(rows: DataFrame, table: str, trigger: dict[str, Any]) -> StreamingQuery:
    """Starts a query that adds rows to a Delta table, each once."""
    checkpoint = f"{table}-checkpoint"
    check_checkpoint(rows.sparkSession, checkpoint, table)
    writer = rows.writeStream.format("delta").option("checkpointLocation", checkpoint)
    return writer.trigger(**trigger).start(table)


def wait(*queries: StreamingQuery) -> None:
    """Waits until all queries have ended; raises the error of one that fails."""
    running = list(queries)
    while running:
        running = [query for query in running if not query.awaitTermination(1)]


def main() -> None:
    """Runs until all is read or, with --follow, until it is stopped."""
    parser = argparse.ArgumentParser(description="Aggregate devices' readings in windows of time.")
    parser.add_argument("--bootstrap", required=True, help="Kafka's address, HOST:PORT")
    parser.add_argument("--topic", required=True, help="the topic of readings")
    parser.add_argument("--to", required=True, help="the path of the Delta table of windows")
    parser.add_argument("--alerts-to", required=True, help="the topic for alerts; it must exist")
    parser.add_argument("--follow", action="store_true", help="stay, and take what is published from now on")
    options = parser.parse_args()
    spark, to, bootstrap = session("telemetry"), options.to.rstrip("/"), options.bootstrap
    trigger: dict[str, Any] = {"processingTime": "10 seconds"} if options.follow else {"availableNow": True}
    # Without `max_per_batch` a backlog is one batch, so no reading is late only because the program was late.
    kept, rejected = readings(messages(spark, options.topic, bootstrap=bootstrap, stream=True))
    found = windows(kept)
    # The table must be there before its windows are read for alerts.
    spark.createDataFrame([], found.schema).write.format("delta").mode("ignore").save(to)
    aside, written = append(rejected, f"{to}-rejected", trigger), append(found, to, trigger)
    if not options.follow:
        wait(aside, written)
    told = write_stream(
        alerts(spark.readStream.format("delta").load(to)),
        options.alerts_to,
        query="telemetry",
        checkpoint=f"{to}-alerts-checkpoint",
        order_by=["start"],
        bootstrap=bootstrap,
        available_now=not options.follow,
    )
    wait(aside, written, told)
    states = [state for batch in written.recentProgress for state in batch["stateOperators"]]
    late = sum(state["numRowsDroppedByWatermark"] for state in states)
    unused = spark.read.format("delta").load(f"{to}-rejected").count()
    print(f"{late:,} rows came too late; {to}-rejected has {unused:,} readings that can't be used")


if __name__ == "__main__":
    main()
