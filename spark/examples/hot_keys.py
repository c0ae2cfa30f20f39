"""Shows the hottest ordering keys of a topic, and how uneven its partitions are.

    python hot_keys.py --bootstrap localhost:9092 --topic orders --since 2026-01-14

A key lies in one partition, so the hottest key limits how many partitions can be busy at once: if it has a third of all
messages, no more than three.
"""

from __future__ import annotations

import argparse
from datetime import UTC, datetime

from kafka_pubsub_spark import messages, session
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F


def by_key(found: DataFrame) -> DataFrame:
    """Counts the messages and bytes of each key; the hottest key comes first."""
    size = F.coalesce(F.length("data"), F.lit(0)) + F.length("key")
    keyed = found.where("key is not null").groupBy("key")
    return keyed.agg(F.count("*").alias("messages"), F.sum(size).alias("bytes")).orderBy(
        F.desc("messages"), "key"
    )


def report(partitions: list[Row], hottest: list[Row]) -> list[str]:
    """Writes what was counted; both lists have the column `messages`, `partitions` also `keyed`."""
    counts = [row.messages for row in partitions]
    total, keyed = sum(counts), sum(row.keyed for row in partitions)
    lines = [f"{total:,} messages, {keyed:,} with a key"]
    if not hottest:
        return lines
    uneven = max(counts) * len(counts) / total
    lines.append(
        f"fullest of {len(counts)} partitions (that hold any): {max(counts):,}, {uneven:.1f} times the mean"
    )
    for row in hottest:
        name = bytes(row.key).decode("utf-8", "backslashreplace")
        lines.append(
            f"{row.messages / keyed:7.2%} {row.messages:>12,} messages {row.bytes:>15,} bytes  {name!r}"
        )
    useful = keyed / hottest[0].messages
    lines.append(f"the hottest key lets {useful:,.1f} partitions be busy at once")
    return lines


def main() -> None:
    """Reads the topic up to the ends that its partitions have at the start."""
    parser = argparse.ArgumentParser(description="Show the hottest keys of a topic.")
    parser.add_argument("--bootstrap", required=True, help="Kafka's address, HOST:PORT")
    parser.add_argument("--topic", required=True, help="the topic whose keys are counted")
    parser.add_argument(
        "--since", type=datetime.fromisoformat, help="count messages from this time on; default: all"
    )
    parser.add_argument("--top", type=int, default=20, help="how many keys are shown; default: 20")
    options = parser.parse_args()
    since = options.since and (options.since if options.since.tzinfo else options.since.replace(tzinfo=UTC))
    found = messages(
        session("hot keys"), options.topic, bootstrap=options.bootstrap, starting=since or "earliest"
    )
    volume = found.groupBy("partition").agg(F.count("*").alias("messages"), F.count("key").alias("keyed"))
    print("\n".join(report(volume.collect(), by_key(found).limit(options.top).collect())))


if __name__ == "__main__":
    main()
