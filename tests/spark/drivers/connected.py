"""A client of Spark Connect: `python -m tests.spark.drivers.connected URL BOOTSTRAP FROM TO DIRECTORY`.

Prints its findings as a JSON object.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kafka_pubsub.errors import PubSubError
from spark import (
    archived,
    decoded,
    lane_messages,
    messages,
    register_tables,
    session,
    write,
    write_stream,
)
from spark.base.connection import Connection
from spark.run.job import Context, Outcome, execute, find

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[3]
SCHEMA = '{"type": "record", "name": "order", "fields": [{"name": "total", "type": "double"}]}'


def refused(call: Callable[[], Any]) -> str:
    """The error's text."""
    try:
        call()
    except PubSubError as error:
        return f"{type(error).__name__}: {error.message}"
    return "nothing"


def main(url: str, bootstrap: str, source: str, target: str, directory: str) -> None:
    spark = session(master=url)
    context = Context("archive", Connection(bootstrap, {}), lambda _: None, master=url)
    print(json.dumps(calls(spark, context, source, target, directory)))


def calls(spark: SparkSession, context: Context, source: str, target: str, directory: str) -> dict[str, Any]:
    """The result of each function, or its refusal."""
    bootstrap = context.connection.bootstrap
    rows = messages(spark, source, bootstrap=bootstrap)
    seen: dict[str, Any] = {"session": type(spark).__module__}
    seen["read"] = sorted([row.ordering_key, row.attributes["seq"]] for row in rows.collect())
    totals = decoded(rows, SCHEMA).where("problem is null").select("record.total")
    seen["avro"] = sorted(row.total for row in totals.collect())
    seen["archived"] = archived(spark, f"{directory}/archive").count()
    plain = spark.createDataFrame([("ann", "tea"), ("ann", "milk")], "ordering_key string, data string")
    write(plain, target, query="daily", batch="1", bootstrap=bootstrap)
    stream = messages(spark, source, bootstrap=bootstrap, stream=True).select("data", "ordering_key")
    for _ in range(2):
        query = write_stream(
            stream,
            target,
            query="copy",
            checkpoint=f"{directory}/checkpoint",
            bootstrap=bootstrap,
            available_now=True,
        )
        query.awaitTermination()
    ids = [row.message_id for row in messages(spark, target, bootstrap=bootstrap).collect()]
    seen["written"] = [len(ids), len(set(ids)), sum(name.startswith("copy-") for name in ids)]
    lanes = lane_messages(spark, source, bootstrap=bootstrap)
    seen["lanes"] = [[row.priority, row.durable] for row in lanes.limit(1).collect()]
    register_tables(spark)
    tables = spark.read.format("kafka_pubsub").option("kafka.bootstrap.servers", bootstrap)
    names = [row.name for row in tables.option("table", "subscriptions").load().collect()]
    seen["subscription"] = f"{source}-sub" in names
    seen["no topic"] = refused(lambda: messages(spark, f"{source}-none", bootstrap=bootstrap))
    seen["no target"] = refused(
        lambda: write(plain, f"{target}-none", query="q", batch=1, bootstrap=bootstrap)
    )
    seen["not an archive"] = refused(lambda: archived(spark, f"{directory}/checkpoint"))
    archive = ["--topic", source, "--to", f"{directory}/again"]
    seen["job"] = refused(lambda: started(context, "archive", archive))
    # The session of this process is a session of Spark Connect, also where --master names none.
    seen["job in it"] = refused(lambda: started(replace(context, master=None), "archive", archive))
    seen["own job"] = own_job(spark, bootstrap, f"{source}-rows", f"{directory}/own")
    seen["another table"] = refused(lambda: archived(spark, f"{directory}/own"))
    return seen


def own_job(spark: SparkSession, bootstrap: str, topic: str, table: str) -> list[int]:
    """Runs the program of docs/spark-job.md: how many rows it took, and how many it rejected."""
    sys.modules["kafka_pubsub_spark"] = sys.modules["spark"]
    (_, text, _) = (ROOT / "docs" / "spark-job.md").read_text().split("```", 2)
    names: dict[str, Any] = {"__name__": "orders_table"}
    exec(text.removeprefix("python\n"), names)
    names["main"](bootstrap, topic, table)
    return [spark.read.format("delta").load(each).count() for each in (table, f"{table}-rejects")]


def started(context: Context, name: str, arguments: list[str]) -> Outcome:
    """Starts a job with its options as they are typed."""
    job = find(name)
    parsed = click.Command(name, params=list(job.options)).make_context(name, list(arguments)).params
    return execute(job, context, parsed)


if __name__ == "__main__":
    main(*sys.argv[1:])
