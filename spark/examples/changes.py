"""Keeps the last state of each row of a database in a Delta table, by the changes that are published.

    python changes.py --bootstrap localhost:9092 --topic database-changes --to /data/rows

A change is JSON like {"action": "UPDATE", "data": {"name": "Anna"}}, published with the row (`users:123`) as ordering
key, so a row's changes lie in one partition, in their order. A change that comes again, or that is older than the
row's state, changes nothing. Between two partitions (of a topic that was repartitioned) the later time of publishing
wins. What isn't a change goes to the table TO-rejected, with its place and the reason.

The job `cdc` does the same for Debezium's changes too, by sequence numbers, and for topics that are made again.
"""

from __future__ import annotations

import argparse

from kafka_pubsub_spark import check_checkpoint, decoded, messages, session, split
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

SCHEMA = "action string, data string"
#: The conditions that each change meets.
CHANGE = ["ordering_key is not null", "action in ('INSERT', 'UPDATE', 'DELETE')"]
#: The table's columns.
ROW = (
    "ordering_key string, data string, deleted boolean, publish_time timestamp, partition int, offset bigint"
)
#: The condition by which a change replaces its row's state.
NEWER = (
    "CASE WHEN changes.partition = row.partition THEN changes.offset > row.offset "
    "ELSE changes.publish_time > row.publish_time END"
)


def states(changes: DataFrame) -> DataFrame:
    """Returns each row's last change as its state; a deleted row stays, so that no older change brings it back."""
    deleted = F.expr("record.action = 'DELETE'")
    every = changes.select(
        "ordering_key",
        F.when(~deleted, F.col("record.data")).alias("data"),
        deleted.alias("deleted"),
        "publish_time",
        "partition",
        "offset",
    )
    here = every.groupBy("ordering_key", "partition").agg(F.max_by(F.struct("*"), "offset").alias("last"))
    here = here.select("last.*")
    last = here.groupBy("ordering_key").agg(F.max_by(F.struct("*"), "publish_time").alias("last"))
    return last.select("last.*")


def main() -> None:
    """Runs until all is read or, with --follow, until it is stopped."""
    parser = argparse.ArgumentParser(description="Keep the last state of each row of a database.")
    parser.add_argument("--bootstrap", required=True, help="Kafka's address, HOST:PORT")
    parser.add_argument("--topic", required=True, help="the topic of changes")
    parser.add_argument("--to", required=True, help="the path of the Delta table of rows")
    parser.add_argument("--follow", action="store_true", help="stay, and take what is published from now on")
    options = parser.parse_args()
    spark, to = session("changes"), options.to.rstrip("/")
    rejects, checkpoint = f"{to}-rejected", f"{to}-checkpoint"
    check_checkpoint(spark, checkpoint, rejects)
    spark.createDataFrame([], ROW).write.format("delta").mode("ignore").save(to)

    def take(batch: DataFrame, number: int) -> None:
        batch.persist()
        changes, rejected = split(batch, CHANGE)
        # Spark repeats a batch that was killed. The table of rows takes it twice without a change; this one must not.
        query = batch.sparkSession.read.json(f"{checkpoint}/metadata").collect()[0].id
        once = {"txnAppId": query, "txnVersion": number}
        rejected.write.format("delta").mode("append").options(**once).save(rejects)
        states(changes).createOrReplaceTempView("changes")
        batch.sparkSession.sql(
            f"""MERGE INTO delta.`{to}` AS row USING changes ON row.ordering_key = changes.ordering_key
            WHEN MATCHED AND {NEWER} THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"""
        )
        batch.unpersist()

    found = messages(spark, options.topic, bootstrap=options.bootstrap, stream=True, max_per_batch=500_000)
    writer = decoded(found, SCHEMA).writeStream.option("checkpointLocation", checkpoint).foreachBatch(take)
    trigger = {"processingTime": "10 seconds"} if options.follow else {"availableNow": True}
    writer.trigger(**trigger).start().awaitTermination()


if __name__ == "__main__":
    main()
