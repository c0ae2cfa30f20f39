"""A client of Spark Connect: `python -m tests.spark.drivers.connected PART URL BOOTSTRAP FROM TO DIRECTORY`.

PART is `calls`, for the functions that programs call, or `jobs`. It prints what it has seen as one JSON object.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from pyspark.sql import functions as F

from kafka_pubsub import PubSub
from kafka_pubsub.errors import PubSubError
from spark import archived, decoded, messages, session, write, write_stream
from spark.archive_table import archive_table
from spark.connection import Connection
from spark.job import Context, Outcome, execute, find

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROOT = Path(__file__).resolve().parents[3]
SCHEMA = '{"type": "record", "name": "order", "fields": [{"name": "total", "type": "double"}]}'


def refused(call: Callable[[], Any]) -> str:
    """What the error says."""
    try:
        call()
    except PubSubError as error:
        return f"{type(error).__name__}: {error.message}"
    return "nothing"


def main(part: str, url: str, bootstrap: str, source: str, target: str, directory: str) -> None:
    spark = session(master=url)
    context = Context("hot-keys", Connection(bootstrap, {}), lambda _: None, master=url)
    rows = messages(spark, source, bootstrap=bootstrap)
    archive = archive_table(spark, f"{directory}/archive")
    kept = rows.withColumn("archived_at", F.current_timestamp()).withColumn("date", F.to_date("publish_time"))
    for _ in range(2):
        archive.append(kept, "by hand", 0)
    if part == "calls":
        print(json.dumps(calls(context, rows, source, target, directory)))
    else:
        print(json.dumps(jobs(context, source, target, directory)))


def calls(context: Context, rows: DataFrame, source: str, target: str, directory: str) -> dict[str, Any]:
    """What each function returned or refused; `rows`: the messages of the source."""
    spark, bootstrap = session(), context.connection.bootstrap
    seen: dict[str, Any] = {"session": type(spark).__module__}
    seen["read"] = sorted([row.ordering_key, row.attributes["seq"]] for row in rows.collect())
    for decoder in ("auto", "fastavro"):
        totals = decoded(rows, SCHEMA, decoder=decoder).where("problem is null").select("record.total")
        seen[decoder] = sorted(row.total for row in totals.collect())
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
    hottest = run(context, "hot-keys", ["--topic", source, "--top", "1"])
    seen["hottest"] = hottest.facts["hottest"][0]["key"]
    seen["no topic"] = refused(lambda: messages(spark, f"{source}-none", bootstrap=bootstrap))
    seen["no target"] = refused(
        lambda: write(plain, f"{target}-none", query="q", batch=1, bootstrap=bootstrap)
    )
    seen["not an archive"] = refused(lambda: archived(spark, f"{directory}/checkpoint"))
    seen["own job"] = own_job(spark, bootstrap, f"{source}-rows", f"{directory}/own")
    return seen


def own_job(spark: SparkSession, bootstrap: str, topic: str, table: str) -> list[int]:
    """Runs the program of docs/spark-job.md: how many rows it took, and how many it rejected."""
    sys.modules["kafka_pubsub_spark"] = sys.modules["spark"]
    (_, text, _) = (ROOT / "docs" / "spark-job.md").read_text().split("```", 2)
    names: dict[str, Any] = {"__name__": "orders_table"}
    exec(text.removeprefix("python\n"), names)
    names["main"](bootstrap, topic, table)
    return [spark.read.format("delta").load(each).count() for each in (table, f"{table}-rejects")]


def jobs(context: Context, source: str, target: str, directory: str) -> dict[str, Any]:
    """What each job did, and some of them when they were started again."""
    rows, spark = f"{source}-rows", session()
    seen: dict[str, Any] = {}

    def once(name: str, counted: str, *arguments: str) -> None:
        ran = run(context, name, list(arguments))
        assert ran.ok, ran
        seen[name] = [*seen.get(name, ()), ran.facts[counted]]

    def twice(name: str, counted: str, *arguments: str) -> None:
        once(name, counted, *arguments)
        once(name, counted, *arguments)

    kept, rejects = f"{directory}/kept", f"{directory}/kept-rejects"
    expected = ("--schema", "temp int", "--expect", "temp < 5")
    twice("archive", "rejected", "--topic", rows, "--to", kept, *expected)
    seen["archived"] = [archived(spark, kept).count(), spark.read.format("delta").load(rejects).count()]
    state = f"{directory}/audits"
    report = f"{directory}/report.html"
    judged = ("--sequence", "attributes['seq']", "--state", state, "--report", report)
    twice("audit", "messages", "--topic", source, "--archive", f"{directory}/archive", *judged)
    seen["report"] = Path(report).read_text().count("Only what came since")
    twice("replay", "written", "--topic", rows, "--to", target, "--state", f"{directory}/replay")
    states = f"{directory}/states"
    once("cdc", "messages", "--topic", rows, "--to", states, "--checkpoint", f"{directory}/cdc")
    seen["states"] = spark.read.format("delta").load(states).count()
    windows = f"{directory}/windows"
    readings = ("--topic", rows, "--to", windows, "--checkpoint", f"{directory}/telemetry", "--field", "temp")
    late = ("--time", "timestamp_seconds(cast(attributes['at'] AS bigint))", "--late-to", f"{directory}/late")
    alerts = ("--alert", "temp_max > 0", "--alerts-to", target, "--late", "1 second")
    once("telemetry", "windows", *readings, *late, *alerts, *expected)
    seen["windows"] = spark.read.format("delta").load(windows).count()
    other = ("--topic", source, "--to", kept)
    seen["another's"] = refused(lambda: run(context, "archive", list(other)))
    # A row that the server's process can't add, in the words of this one.
    typed = ["--topic", rows, "--to", kept, "--schema", "temp string"]
    published(context.connection.bootstrap, rows)
    seen["told by a batch"] = refused(lambda: run(context, "archive", typed))
    seen["metrics"] = refused(lambda: replace(context, metrics_port=4040).spark())
    return seen


def published(bootstrap: str, topic: str) -> None:
    """One more message."""
    with PubSub(bootstrap) as ps:
        ps.topic(topic).publish(b'{"temp": "warm"}').result(30)


def run(context: Context, name: str, arguments: list[str]) -> Outcome:
    """A job with its options as they are typed."""
    job = find(name)
    parsed = click.Command(name, params=list(job.options)).make_context(name, arguments).params
    return execute(job, replace(context, name=name), parsed)


if __name__ == "__main__":
    main(*sys.argv[1:])
