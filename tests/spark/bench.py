"""The figures of the pipeline, on an embedded Kafka of its own: `python -m tests.spark.bench`.

archive: the job beside a bare Spark read and append to Delta of the same columns, by turns, medians; the target is
70 %.
audit: a topic that grows; at each size a run in a process with 4 GB; the time by message must not grow. Then 1 %
more, and an audit that goes on from the audit before: a tenth of the time.
replay: the archive's topic into another, unthrottled; the target is 50,000 messages a second.

Rules
1. Every measure is a process of its own, warmed up by the same work on a small topic: the start of a session, and
   code that isn't compiled yet, belong to no message. CPU is the JVM's own, all cores together: on a machine that
   others use as well CPU says more than the time.
2. Topics are filled by our own publisher, in some processes, each with keys of its own.
3. Every step says when it begins and how long it took, and nothing takes longer than `PATIENCE`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click

from kafka_pubsub import PubSub
from kafka_pubsub.local.broker import LocalKafka

ROOT = Path(__file__).resolve().parents[2]
KEYS = 1000
PARTITIONS = 8
SEQUENCE = "attributes['seq']"
#: The share of a bare read and write that `archive` must reach.
TARGET = 0.7
#: Messages a second that `replay` must reach, and the share of a whole audit's time that one of 1 % more may take.
REPLAYED, AUDITED = 50_000, 0.1
#: Processes that fill a topic: the broker needs a core as well.
WRITERS = 3
#: Messages of the topic that warms up.
SMALL = 100_000
#: Seconds for a fill or a measure.
PATIENCE = 900
BEGAN = time.monotonic()


class Taken(NamedTuple):
    """Of a measure: seconds, seconds of all cores, and the most memory (GB) that the JVM had."""

    seconds: float
    cpu: float
    memory: float


def tell(text: str) -> None:
    print(f"{time.monotonic() - BEGAN:6.0f} s  {text}", file=sys.stderr, flush=True)


def apart(*arguments: object) -> list[str]:
    """This program with other arguments."""
    return [sys.executable, "-m", "tests.spark.bench", *map(str, arguments)]


def fill(bootstrap: str, topic: str, first: int, last: int, size: int) -> None:
    """Messages `first` to `last`, numbered within their key."""
    began = time.monotonic()
    told = ["--bootstrap", bootstrap, "--topic", topic, "--numbers", f"{first},{last}", "--size", size]
    writers = [subprocess.Popen(apart("--only", f"write{at}", *told), cwd=ROOT) for at in range(WRITERS)]
    try:
        for writer in writers:
            if writer.wait(PATIENCE) != 0:
                raise SystemExit(f"a writer of {topic} failed")
    finally:
        for writer in writers:
            writer.kill()
    took = time.monotonic() - began
    tell(
        f"{last - first:,} messages of {size} bytes into {topic}: {took:.0f} s, {(last - first) / took:,.0f}/s"
    )


def write(bootstrap: str, topic: str, numbers: range, size: int, writer: int) -> None:
    """A writer's share: some keys, with all their messages."""
    body = bytes(range(256)) * (size // 256 + 2)
    with PubSub(bootstrap) as ps:
        handle = ps.topic(topic)
        for number in numbers:
            if number % KEYS % WRITERS != writer:
                continue
            handle.publish(
                body[number % 256 :][:size],
                ordering_key=f"k{number % KEYS}",
                attributes={"seq": str(number // KEYS + 1)},
            )
        handle.flush(PATIENCE)


def made(bootstrap: str, topic: str) -> str:
    with PubSub(bootstrap) as ps:
        ps.create_topic(topic, partitions=PARTITIONS)
    return topic


def bare(spark: Any, bootstrap: str, topic: str, to: str) -> None:
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "includeHeaders": "true"}
    from pyspark.sql import functions as F

    from spark.reading.rows import rows

    # The archive's columns, each body once: the measure is the cost of once-only batches and ownership.
    found = rows(spark.read.format("kafka").options(**options).load(), retry_topics=False)
    found = found.withColumns({"archived_at": F.current_timestamp(), "date": F.to_date("publish_time")})
    found.write.format("delta").partitionBy("topic", "date").save(to)


def job(context: Any, name: str, *arguments: object) -> Any:
    """The outcome of a job with the options as they are typed."""
    from spark.run.job import find

    found = find(name)
    outcomes: list[Any] = []

    def run(**told: Any) -> None:
        del told["master"], told["conf"], told["metrics_port"]
        outcomes.append(found.run(context, **told))

    click.Command(name, params=found.parameters(), callback=run).main(
        list(map(str, arguments)), standalone_mode=False
    )
    assert outcomes[0].ok, outcomes[0].text
    return outcomes[0]


def archive(context: Any, topic: str, to: str) -> None:
    never = ("--optimize-every", "never", "--vacuum-every", "never")
    # A single batch: the bare read has no others.
    job(context, "archive", "--topic", topic, "--to", to, "--max-per-batch", 100_000_000, *never)


def audit(context: Any, topic: str, state: str) -> None:
    job(context, "audit", "--topic", topic, "--sequence", SEQUENCE, "--state", state)


def replay(context: Any, topic: str, to: str, state: str) -> None:
    job(context, "replay", "--topic", topic, "--to", to, "--state", state)


def measure(what: str, bootstrap: str, topic: str, small: str, cores: int, state: str | None) -> Taken:
    """In this process, beside its JVM; `state` is where an audit keeps its work."""
    from spark.base.connection import Connection
    from spark.base.spark_session import session
    from spark.run.job import Context

    conf = {"spark.driver.memory": "4g", "spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1"}
    spark = session("bench", master=f"local[{cores}]", conf=conf)
    context = Context("bench", Connection(bootstrap), lambda text: tell(f"    {text}"))
    java = int(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid())  # type: ignore[union-attr]

    def work(topic: str, directory: str) -> None:
        if what == "bare":
            bare(spark, bootstrap, topic, f"{directory}/bare")
        elif what == "archive":
            archive(context, topic, f"{directory}/archive")
        elif what == "replay":
            replay(context, topic, f"{topic}-again", f"{directory}/state")
        else:
            audit(context, topic, f"{state if topic != small else directory}/audits")

    with tempfile.TemporaryDirectory() as directory:
        work(small, f"{directory}/small")
        if what == "audit":
            # The second goes on from the first.
            work(small, f"{directory}/small")
        cpu, began = cpu_of(java), time.perf_counter()
        work(topic, f"{directory}/all")
        taken = Taken(time.perf_counter() - began, cpu_of(java) - cpu, memory_of(java))
    spark.stop()
    return taken


def cpu_of(process: int) -> float:
    """Seconds of CPU; 0 where /proc doesn't tell."""
    try:
        told = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(told[11]) + int(told[12])) / os.sysconf("SC_CLK_TCK")


def memory_of(process: int) -> float:
    """The most GB that were resident; 0 where /proc doesn't tell."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1e6


class Bench:
    """A single broker, a small topic, and measures in turn."""

    def __init__(self, bootstrap: str, cores: int) -> None:
        self._bootstrap = bootstrap
        self._cores = cores
        self._small = made(bootstrap, "bench-small")
        fill(bootstrap, self._small, 0, SMALL, 100)

    def _measured(self, what: str, topic: str, state: str = "") -> Taken:
        tell(f"{what} of {topic}")
        told = ["--bootstrap", self._bootstrap, "--topic", topic, "--small", self._small, "--state", state]
        ran = subprocess.run(
            apart("--only", what, *told, "--cores", self._cores),
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            timeout=PATIENCE,
        )
        taken = Taken(*json.loads(ran.stdout.splitlines()[-1]))
        tell(f"{what}: {taken.seconds:.1f} s, {taken.cpu:.1f} s of CPU, {taken.memory:.1f} GB")
        return taken

    def archive(self, messages: int, repeat: int) -> dict[str, Any]:
        """The job's share of a bare read and write."""
        topic = made(self._bootstrap, f"bench-archive-{messages}")
        fill(self._bootstrap, topic, 0, messages, 1024)
        found: dict[str, list[Taken]] = {"bare": [], "archive": []}
        for _ in range(repeat):
            for what, taken in found.items():
                taken.append(self._measured(what, topic))

        def ratio(of: Callable[[Taken], float]) -> float:
            plain, ours = (statistics.median(map(of, found[what])) for what in ("bare", "archive"))
            return plain / ours if ours else 0.0

        share = ratio(lambda taken: taken.seconds)
        rates = {
            f"{what}_per_s": round(messages / statistics.median(each.seconds for each in taken))
            for what, taken in found.items()
        }
        by_cpu = ratio(lambda taken: taken.cpu)
        return {"messages": messages, **rates, "share": share, "share_by_cpu": by_cpu, "ok": share >= TARGET}

    def replay(self, messages: int) -> dict[str, Any]:
        """Messages a second, of the archive's topic."""
        topic = f"bench-archive-{messages}"
        for each in (topic, self._small):
            made(self._bootstrap, f"{each}-again")
        taken = self._measured("replay", topic)
        rate = round(messages / taken.seconds)
        return {"messages": messages, **taken._asdict(), "per_s": rate, "ok": rate >= REPLAYED}

    def audit(self, sizes: Sequence[int]) -> list[dict[str, Any]]:
        """A row for each size, which is the topic's when it has grown so far; then a row for 1 % more."""
        topic, there, rows = made(self._bootstrap, "bench-audit"), 0, list[dict[str, Any]]()
        last = ""
        with tempfile.TemporaryDirectory() as directory:
            for size in sorted(sizes):
                fill(self._bootstrap, topic, there, size, 100)
                there, last = size, f"{directory}/{size}"
                rows.append(self._audited(topic, size, size, last))
            if rows:
                more = there // 100
                fill(self._bootstrap, topic, there, there + more, 100)
                row = self._audited(topic, there + more, more, last)
                share = row["seconds"] / rows[-1]["seconds"]
                print(json.dumps({"audit of 1 % more": {**row, "share": share, "ok": share <= AUDITED}}))
        return rows

    def _audited(self, topic: str, size: int, read: int, state: str) -> dict[str, Any]:
        taken = self._measured("audit", topic, state)
        row = {"messages": size, **taken._asdict(), "us_per_message": taken.seconds / read * 1e6}
        print(json.dumps(row), flush=True)
        return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--messages", type=int, default=2_000_000, help="for archive; 0: only the audit")
    parser.add_argument("--sizes", default="1000000,3000000,10000000", help="for audit")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--cores", type=int, default=4)
    for hidden in ("--bootstrap", "--topic", "--small", "--numbers", "--only", "--state"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    parser.add_argument("--size", type=int, help=argparse.SUPPRESS)
    told = parser.parse_args()
    if told.only is None:
        compare(told)
    elif told.only.startswith("write"):
        numbers = range(*map(int, told.numbers.split(",")))
        write(told.bootstrap, told.topic, numbers, told.size, int(told.only.removeprefix("write")))
    else:
        print(json.dumps(measure(told.only, told.bootstrap, told.topic, told.small, told.cores, told.state)))


def compare(told: argparse.Namespace) -> None:
    """All measures."""
    sizes = [int(each) for each in told.sizes.split(",") if each]
    with LocalKafka() as kafka:
        bench = Bench(kafka.bootstrap, told.cores)
        if told.messages:
            print(json.dumps({"archive": bench.archive(told.messages, told.repeat)}), flush=True)
            print(json.dumps({"replay": bench.replay(told.messages)}), flush=True)
        bench.audit(sizes)
    tell("done")


if __name__ == "__main__":
    main()
