"""A user's own program that copies a topic: `python -m tests.spark.drivers.copying BOOTSTRAP FROM TO CHECKPOINT`."""

from __future__ import annotations

import sys

from spark import messages, session, write_stream


def main(bootstrap: str, source: str, target: str, checkpoint: str) -> None:
    conf = {"spark.ui.enabled": "false", "spark.driver.memory": "700m", "spark.sql.shuffle.partitions": "2"}
    spark = session("copying", master="local[1]", conf=conf)
    rows = messages(spark, source, bootstrap=bootstrap, stream=True, max_per_batch=20)
    query = write_stream(
        rows.select("data", "ordering_key"), target, query="copy", checkpoint=checkpoint, bootstrap=bootstrap
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
