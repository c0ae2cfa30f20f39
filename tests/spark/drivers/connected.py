"""A client of Spark Connect: `python -m tests.spark.drivers.connected URL BOOTSTRAP FROM TO DIRECTORY`.

It prints what it has seen as one JSON object.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import click
from pyspark.sql import functions as F

from kafka_pubsub.errors import PubSubError
from spark import archived, decoded, messages, session, write, write_stream
from spark.archive_table import archive_table
from spark.connection import Connection
from spark.job import Context, Outcome, execute, find

SCHEMA = '{"type": "record", "name": "order", "fields": [{"name": "total", "type": "double"}]}'


def refused(call: Callable[[], Any]) -> str:
    """What the error says."""
    try:
        call()
    except PubSubError as error:
        return f"{type(error).__name__}: {error.message}"
    return "nothing"


def main(url: str, bootstrap: str, source: str, target: str, directory: str) -> None:
    spark = session(master=url)
    rows = messages(spark, source, bootstrap=bootstrap)
    seen: dict[str, Any] = {"session": type(spark).__module__}
    seen["read"] = sorted([row.ordering_key, row.attributes["seq"]] for row in rows.collect())
    for decoder in ("auto", "fastavro"):
        totals = decoded(rows, SCHEMA, decoder=decoder).where("problem is null").select("record.total")
        seen[decoder] = sorted(row.total for row in totals.collect())
    archive = archive_table(spark, f"{directory}/archive")
    kept = rows.withColumn("archived_at", F.current_timestamp()).withColumn("date", F.to_date("publish_time"))
    for _ in range(2):
        archive.append(kept, "by hand", 0)
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
    context = Context("hot-keys", Connection(bootstrap, {}), lambda _: None, master=url)
    hottest = run(context, "hot-keys", ["--topic", source, "--top", "1"])
    seen["hottest"] = hottest.facts["hottest"][0]["key"]
    seen["no topic"] = refused(lambda: messages(spark, f"{source}-none", bootstrap=bootstrap))
    seen["no target"] = refused(
        lambda: write(plain, f"{target}-none", query="q", batch=1, bootstrap=bootstrap)
    )
    seen["not an archive"] = refused(lambda: archived(spark, f"{directory}/checkpoint"))
    seen["audit"] = refused(lambda: run(context, "audit", ["--topic", source]))
    seen["archive"] = refused(
        lambda: run(context, "archive", ["--topic", source, "--to", f"{directory}/other"])
    )
    print(json.dumps(seen))


def run(context: Context, name: str, arguments: list[str]) -> Outcome:
    """A job with its options as they are typed."""
    job = find(name)
    parsed = click.Command(name, params=list(job.options)).make_context(name, arguments).params
    return execute(job, context, parsed)


if __name__ == "__main__":
    main(*sys.argv[1:])
