"""The figures of the pipeline, on an embedded Kafka of its own: `python -m tests.spark.bench`.

archive: the job beside a bare Spark read and write of the same topic, by turns, medians; the target is 70 %.
audit: each size in one run of a process with 4 GB; the time by message must not grow. `--plot FILE` draws it.

Rule: every measure is a process of its own; the start of the session isn't counted.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from kafka_pubsub import PubSub
from kafka_pubsub.local.broker import LocalKafka

ROOT = Path(__file__).resolve().parents[2]
KEYS = 1000
SEQUENCE = "attributes['seq']"
#: The share of a bare read and write that `archive` must reach.
TARGET = 0.7


def fill(bootstrap: str, topic: str, messages: int, size: int) -> None:
    body = bytes(range(256)) * (size // 256 + 1)
    with PubSub(bootstrap) as ps:
        handle = ps.create_topic(topic, partitions=8)
        for number in range(messages):
            handle.publish(
                body[number % 256 :][:size],
                ordering_key=f"k{number % KEYS}",
                attributes={"seq": str(number // KEYS + 1)},
            )
        handle.flush(600)


def bare(spark: Any, bootstrap: str, topic: str, to: str) -> None:
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "includeHeaders": "true"}
    spark.read.format("kafka").options(**options).load().write.parquet(to)


def measure(what: str, bootstrap: str, topic: str, cores: int) -> float:
    """Seconds, in this process."""
    from spark.job import Context, find
    from spark.place import Place
    from spark.session import session

    conf = {"spark.driver.memory": "4g", "spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1"}
    spark = session("bench", master=f"local[{cores}]", conf=conf)
    spark.range(10).count()
    context = Context("bench", Place(bootstrap), lambda text: print(text, file=sys.stderr))
    with tempfile.TemporaryDirectory() as directory:
        began = time.perf_counter()
        if what == "bare":
            bare(spark, bootstrap, topic, f"{directory}/bare")
        elif what == "archive":
            options = {"max_per_batch": 2_000_000, "follow": False, "every": "10 seconds", "lost": "fail"}
            find("archive").run(
                context,
                topics=(topic,),
                pattern=None,
                to=f"{directory}/archive",
                form="parquet",
                schema=None,
                checkpoint=None,
                compact=False,
                **options,
            )
        else:
            told = {"archive": None, "sequence": SEQUENCE, "subscriptions": (), "report": None}
            outcome = find("audit").run(context, topic=topic, **told)
            assert outcome.ok, outcome.text
        took = time.perf_counter() - began
    spark.stop()
    return took


def apart(what: str, bootstrap: str, topic: str, cores: int) -> float:
    """The same in a process of its own."""
    arguments = ["--only", what, "--bootstrap", bootstrap, "--topic", topic, "--cores", str(cores)]
    ran = subprocess.run(
        [sys.executable, "-m", "tests.spark.bench", *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return float(ran.stdout.splitlines()[-1])


def archive_row(bootstrap: str, messages: int, repeat: int, cores: int) -> dict[str, Any]:
    topic = f"bench-archive-{messages}"
    fill(bootstrap, topic, messages, 1024)
    times: dict[str, list[float]] = {"bare": [], "archive": []}
    for _ in range(repeat):
        for what, found in times.items():
            found.append(apart(what, bootstrap, topic, cores))
    plain, ours = (messages / statistics.median(times[what]) for what in ("bare", "archive"))
    share = ours / plain
    return {
        "messages": messages,
        "bare_per_s": plain,
        "archive_per_s": ours,
        "share": share,
        "ok": share >= TARGET,
    }


def audit_rows(bootstrap: str, sizes: list[int], cores: int) -> list[dict[str, Any]]:
    rows = []
    for size in sizes:
        topic = f"bench-audit-{size}"
        fill(bootstrap, topic, size, 100)
        took = apart("audit", bootstrap, topic, cores)
        rows.append({"messages": size, "seconds": took, "us_per_message": took / size * 1e6})
        print(json.dumps(rows[-1]), flush=True)
    return rows


def plot(rows: list[dict[str, Any]], path: Path) -> None:
    from spark.report import bars, page

    times = {f"{row['messages']:,}": row["seconds"] for row in rows}
    each = {f"{row['messages']:,}": row["us_per_message"] for row in rows}
    sections = [("Seconds", bars(times, "s")), ("Microseconds a message", bars(each, "us"))]
    path.write_text(page("Audit by messages", sections), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=2_000_000, help="for archive")
    parser.add_argument("--sizes", default="1000000,3000000,10000000", help="for audit")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--cores", type=int, default=4)
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--bootstrap")
    parser.add_argument("--topic")
    parser.add_argument("--only", choices=["bare", "archive", "audit"], help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.only:
        print(measure(arguments.only, arguments.bootstrap, arguments.topic, arguments.cores))
        return
    sizes = [int(each) for each in arguments.sizes.split(",") if each]
    with LocalKafka() as kafka:
        if arguments.messages:
            row = archive_row(kafka.bootstrap, arguments.messages, arguments.repeat, arguments.cores)
            print(json.dumps({"archive": row}), flush=True)
        rows = audit_rows(kafka.bootstrap, sizes, arguments.cores)
    if arguments.plot is not None:
        plot(rows, arguments.plot)


if __name__ == "__main__":
    main()
