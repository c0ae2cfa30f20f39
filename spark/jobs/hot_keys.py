"""The job `hot-keys` shows the hottest keys of a topic, its skew, and a number of partitions that would suit it."""

from __future__ import annotations

from typing import Any

import click

from ..bodies import Bodies, expect_option, schema_option
from ..job import Context, Job, Outcome, option, time_of
from ..transforms.protobuf import Protobuf

__all__ = ["JOB", "run"]


def run(
    context: Context,
    *,
    topic: str,
    top: int,
    since: str | None,
    schema: str | Protobuf | None,
    expect: tuple[str, ...],
) -> Outcome:
    """Runs the job `hot-keys`."""
    first = time_of(since, "--since")
    spark = context.spark()
    from pyspark.sql import functions as F

    from ..transforms.expectations import split
    from ..transforms.hot_keys import WEIGHED, KeyLoad, by_key, suggest
    from ..transforms.messages import messages

    found = messages(
        spark,
        topic,
        bootstrap=context.connection.bootstrap,
        config=context.connection.config,
        starting=first or "earliest",
    )
    rejected = 0
    if schema is not None or expect:
        found, left = split(Bodies(schema).decoded(found, topic), expect)
        rejected = left.count()
    volume = found.groupBy("partition").agg(F.count("*").alias("messages"), F.count("key").alias("keyed"))
    partitions = {row.partition: (row.messages, row.keyed) for row in volume.orderBy("partition").collect()}
    total = sum(keyed for _, keyed in partitions.values())
    rows = by_key(found).limit(WEIGHED).collect()
    hottest = [KeyLoad(bytes(row.key), row.messages, row.bytes) for row in rows]
    suggestion = suggest(hottest, total)
    shown = [
        {
            "key": each.key.decode("utf-8", "backslashreplace"),
            "messages": each.messages,
            "bytes": each.bytes,
            "share": each.messages / total,
        }
        for each in hottest[:top]
    ]
    facts: dict[str, Any] = {
        "topic": topic,
        "messages": sum(count for count, _ in partitions.values()),
        "keyed": total,
        "rejected": rejected,
        "partitions": {str(number): count for number, (count, _) in partitions.items()},
        "hottest": shown,
        "useful_partitions": round(suggestion.useful, 1),
        "unevenness": {str(count): round(value, 2) for count, value in suggestion.unevenness.items()},
        "suggested_partitions": suggestion.partitions,
    }
    return Outcome(facts, _text(facts))


def _text(facts: dict[str, Any]) -> str:
    if not facts["hottest"]:
        return f"{facts['topic']}: {facts['messages']:,} messages, none with a key"
    lines = [f"{facts['topic']}: {facts['messages']:,} messages, {facts['keyed']:,} with a key"]
    counts = facts["partitions"].values()
    fullest, mean = max(counts), sum(counts) / len(counts)
    if facts["rejected"]:
        lines.append(f"{facts['rejected']:,} messages that aren't as expected are left out")
    lines.append(
        f"fullest of {len(counts)} partitions (that hold any): {fullest:,}, {fullest / mean:.1f} times the mean"
    )
    lines += [f"{each['share']:7.2%} {each['messages']:>12,}  {each['key']!r}" for each in facts["hottest"]]
    lines.append(
        f"suggested partitions: {facts['suggested_partitions']} (the hottest key lets {facts['useful_partitions']:,} "
        "be busy at once)"
    )
    return "\n".join(lines)


JOB = Job(
    "hot-keys",
    """Show the hottest keys of a topic, how uneven its partitions are, and how many partitions would suit it.""",
    [
        option(
            "--topic",
            required=True,
            metavar="NAME",
            help="The topic whose keys are counted, up to the ends that its partitions have at the start.",
        ),
        option(
            "--top",
            type=click.IntRange(1, 10_000),
            default=20,
            show_default=True,
            metavar="KEYS",
            help="How many of the hottest keys are shown, the one with the most messages first.",
        ),
        option(
            "--since",
            metavar="TIME",
            help="Count only messages published from then on (ISO 8601, UTC unless it says otherwise). Default: all.",
        ),
        schema_option("Messages whose bodies don't fit are left out, and counted."),
        expect_option("The others are left out, and counted."),
    ],
    [("a topic", "--topic orders"), ("today's", "--topic orders --since 2026-01-14")],
    run,
)
