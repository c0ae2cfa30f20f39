"""A session that has neither spark-avro nor Delta: `python -m tests.spark.drivers.few_jars BOOTSTRAP TOPIC`.

Prints its findings as a JSON object.
"""

from __future__ import annotations

import json
import sys

from spark import archived, decoded, messages, session
from tests.spark.drivers.connected import SCHEMA, refused


def main(bootstrap: str, topic: str) -> None:
    conf = {"spark.ui.enabled": "false", "spark.driver.memory": "700m"}
    spark = session("few jars", master="local[1]", delta=False, conf=conf)
    rows = messages(spark, topic, bootstrap=bootstrap)
    seen = {
        "read": rows.count(),
        "avro": refused(lambda: decoded(rows, SCHEMA)),
        "delta": refused(lambda: archived(spark, "/nowhere")),
        "table": refused(lambda: archived(spark, "default.archive")),
    }
    print(json.dumps(seen))


if __name__ == "__main__":
    main(*sys.argv[1:])
