"""The whole story in a single scene: publish, nack, archive and audit meanwhile, kill the driver, judge.

`python -m tests.spark.drivers.scene --messages 1000000` is the long form, on an embedded Kafka of its own; the
suite runs a short scene. With --cluster the killed drivers run on a standalone cluster of two workers, and an executor
is killed as well. Rules
1. Drivers are processes of their own, started with the command line that a user types; a kill is SIGKILL of the
   whole process group, so that Python and Java go at the same moment.
2. The archive is judged twice: by the audit, and by reading log and archive with other means (a plain consumer,
   pyarrow).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from confluent_kafka import Consumer, TopicPartition

from kafka_pubsub import Message, PubSub, RetryPolicy
from kafka_pubsub.config import DeadLetterPolicy
from tests.spark.needs import SHORT_LIVED
from tests.spark.standalone import Standalone, Worker, kill_executor, standalone

ROOT = Path(__file__).resolve().parents[3]
#: Seconds for a job that is left alone, or for a driver's next batch.
PATIENCE = 900
SEQUENCE = "attributes['seq']"
#: Small, because these drivers share a machine with a broker and a publisher.
CONF = [
    f"--conf={each}"
    for each in (
        "spark.ui.enabled=false",
        "spark.sql.shuffle.partitions=4",
        f"spark.driver.extraJavaOptions={SHORT_LIVED}",
        f"spark.executor.extraJavaOptions={SHORT_LIVED}",
        "spark.driver.host=127.0.0.1",
        "spark.driver.bindAddress=127.0.0.1",
    )
]
LOCAL = "local[2]"


def keys_of(messages: int) -> int:
    """How many keys that many messages have: with too few a nack in fifty leaves most of them waiting at any time."""
    return max(100, messages // 1000)


#: Runs a job that is left alone, with its options as text: whether it was ok, and its facts.
Run = Callable[..., tuple[bool, dict[str, Any]]]


def command(bootstrap: str, name: str, *arguments: str, master: str = LOCAL) -> list[str]:
    base = [sys.executable, "-m", "kafka_pubsub.cli.main", "--json", "-b", bootstrap, "spark", "run", name]
    return [*base, "--master", master, *CONF, *arguments]


def in_process_of_its_own(bootstrap: str) -> Run:
    """As a user runs the job."""

    def run(name: str, *arguments: str) -> tuple[bool, dict[str, Any]]:
        ran = subprocess.run(
            command(bootstrap, name, *arguments),
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert ran.stdout.strip(), f"{name} said nothing (exit {ran.returncode}): {ran.stderr[-3000:]}"
        return ran.returncode == 0, json.loads(ran.stdout.splitlines()[-1])

    return run


class Driver:
    """A job in a process group of its own, to be killed."""

    def __init__(
        self, bootstrap: str, name: str, *arguments: str, master: str, environment: Mapping[str, str]
    ) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            command(bootstrap, name, *arguments, master=master),
            cwd=ROOT,
            env={**os.environ, **environment},
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
        )

    def wait_until(self, holds: Any, patience: float) -> None:
        until = time.monotonic() + patience
        while not holds():
            assert self._process.poll() is None, f"the driver ended by itself: {self.said()}"
            assert time.monotonic() < until, f"nothing happened in {patience} s: {self.said()}"
            time.sleep(0.05)

    def said(self) -> str:
        self._log.seek(0)
        return self._log.read().decode("utf-8", "replace")[-3000:]

    def kill(self) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(30)
        self._log.close()


@contextmanager
def nacking(ps: PubSub, name: str) -> Iterator[Counter[str]]:
    """A subscriber that nacks a single message in fifty, once."""
    dice, said, lock = random.Random(1), Counter[str](), threading.Lock()

    def handle(message: Message) -> None:
        with lock:
            nack = message.delivery_attempt == 1 and dice.random() < 0.02
            said["nacked" if nack else "acked"] += 1
        message.nack() if nack else message.ack()

    with ps.subscription(name).pull(handle):
        yield said


def publish(ps: PubSub, topic: str, messages: int, rate: float | None) -> threading.Thread:
    def go() -> None:
        handle, began, keys = ps.topic(topic), time.monotonic(), keys_of(messages)
        for number in range(messages):
            handle.publish(
                b"%d" % number, ordering_key=f"k{number % keys}", attributes={"seq": str(number // keys + 1)}
            )
            if rate is not None and number % 100 == 0:
                time.sleep(max(0.0, number / rate - (time.monotonic() - began)))
        handle.flush(120)

    thread = threading.Thread(target=go, daemon=True)
    thread.start()
    return thread


def entries(log: Path) -> int:
    """How many batches an archive has, by its Delta log."""
    return sum('"operation":"WRITE"' in path.read_text() for path in log.glob("*.json"))


def more_batches(driver: Driver, log: Path) -> None:
    at = entries(log)
    driver.wait_until(lambda: entries(log) > at, PATIENCE)


def live_and_die(driver: Driver, log: Path, later: float, worker: Worker | None) -> None:
    """Some batches, then SIGKILL so many seconds later; of a worker that is given the executor dies first."""
    try:
        more_batches(driver, log)
        if worker is not None:
            kill_executor(worker)
            tell("executor killed")
            more_batches(driver, log)
        time.sleep(later)
    finally:
        driver.kill()
    tell(f"driver killed after {entries(log)} batches")


def tell(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def play(
    bootstrap: str,
    name: str,
    directory: Path,
    *,
    messages: int,
    kills: int = 2,
    rate: float | None = None,
    run: Run | None = None,
    environment: Mapping[str, str] | None = None,
    cluster: Standalone | None = None,
) -> None:
    """The scene; raises broken promises. Of a cluster the first driver loses an executor before it is killed."""
    master = LOCAL if cluster is None else cluster[0]
    run = run or in_process_of_its_own(bootstrap)
    archive = directory / "archive"
    log = archive / "_delta_log"
    follow = ["--topic", name, "--to", str(archive), "--follow", "--every", "1 second"]
    follow += ["--max-per-batch", str(max(100, messages // 20))]
    with PubSub(bootstrap) as ps:
        ps.create_topic(name, partitions=4)
        ps.create_topic(f"{name}-dead", partitions=1)
        ps.create_subscription(
            f"{name}-sub",
            topic=name,
            message_ordering=True,
            retry=RetryPolicy(min_backoff=0.01, max_backoff=0.1),
            dead_letter=DeadLetterPolicy(topic=f"{name}-dead"),
        )
        with nacking(ps, f"{name}-sub") as said:
            publisher = publish(ps, name, messages, rate)
            for kill in range(kills):
                driver = Driver(bootstrap, "archive", *follow, master=master, environment=environment or {})
                # Each kill hits another moment of a batch: right after a batch, and in the middle of the next.
                live_and_die(driver, log, 0.4 * kill, None if cluster is None or kill else cluster[1][0])
            ok, facts = run("audit", "--topic", name, "--sequence", SEQUENCE)
            tell(f"audit meanwhile: {facts['messages']:,} messages, {facts['steps']}")
            assert facts["findings"] == []
            assert ok
            until = time.monotonic() + 300 + messages / 2000
            while publisher.is_alive() or said["acked"] < messages:
                assert time.monotonic() < until, said
                publisher.join(10)
                if said["acked"] < messages:
                    tell(f"published and acked so far: {dict(said)}")
                    time.sleep(0.5)
            time.sleep(1)
        tell(f"published and acked: {dict(said)}")
    ok, facts = run("archive", *follow[:4])
    assert ok, facts
    judge(run, bootstrap, name, archive, directory, messages)


def judge(run: Run, bootstrap: str, name: str, archive: Path, directory: Path, messages: int) -> None:
    """Archive equals log, once each; the audit says so; and three plants are each named."""
    assert kept(archive) == logged(bootstrap, name)
    tell("archive equals log")
    options = ["--topic", name, "--sequence", SEQUENCE]
    page = directory / "audit.html"
    ok, facts = run("audit", *options, "--archive", str(archive), "--report", str(page))
    assert (facts["findings"], facts["messages"], ok) == ([], messages, True)
    assert facts["archive"]["behind"] == {}
    (subscription,) = facts["subscriptions"]
    assert (subscription["acked"], subscription["waiting"], subscription["parked"]) == (messages, 0, 0)
    assert page.stat().st_size > 1000
    tell("audit clean")
    copy = directory / "copy"
    shutil.copytree(archive, copy)
    wanted = plant(copy)
    ok, facts = run("audit", *options, "--archive", str(copy))
    assert not ok
    found = {
        (each["kind"], each["partition"], each["offset"])
        for each in facts["findings"]
        if each["step"] == "archive and log"
    }
    assert found == wanted, (found, wanted)
    by_number = {each["kind"] for each in facts["findings"] if each["step"] == "order of the archive"}
    assert by_number == {"reorder", "gap", "duplicate"}
    tell(f"plants named: {sorted(found)}")


def logged(bootstrap: str, name: str) -> Counter[tuple[int, int, bytes, bytes]]:
    """The log, by a plain consumer."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": f"{name}-judge", "isolation.level": "read_committed"}
    )
    ends = {
        number: consumer.get_watermark_offsets(TopicPartition(name, number), 20)[1]
        for number in consumer.list_topics(name, 20).topics[name].partitions
    }
    consumer.assign([TopicPartition(name, number, 0) for number in ends])
    found: Counter[tuple[int, int, bytes, bytes]] = Counter()
    while found.total() < sum(ends.values()):
        batch = consumer.consume(10_000, 20)
        assert batch
        found.update((each.partition(), each.offset(), each.key(), each.value()) for each in batch)  # type: ignore[misc]
    consumer.close()
    return found


def kept(archive: Path) -> Counter[tuple[int, int, bytes, bytes]]:
    """The archive, by its Delta log and pyarrow."""
    found: Counter[tuple[int, int, bytes, bytes]] = Counter()
    for path in live(archive):
        table = pq.ParquetFile(path).read(["partition", "offset", "key", "data"])
        found.update(zip(*(table.column(each).to_pylist() for each in table.column_names), strict=True))
    return found


def live(archive: Path) -> list[Path]:
    """The files that the Delta log lists; in a test all its commits are still there."""
    files: dict[str, None] = {}
    for path in sorted((archive / "_delta_log").glob("*.json")):
        for line in path.read_text().splitlines():
            action = json.loads(line)
            if "remove" in action:
                files.pop(action["remove"]["path"], None)
            if "add" in action:
                files[action["add"]["path"]] = None
    return [archive / unquote(name) for name in files]


def plant(copy: Path) -> set[tuple[str, int, int]]:
    """Swaps two messages of a key, takes one out, doubles one; an audit must find all three."""
    path = max(live(copy), key=lambda each: each.stat().st_size)
    table = pq.ParquetFile(path).read()
    rows = table.to_pylist(maps_as_pydicts="strict")
    rows.sort(key=lambda each: (each["partition"], each["offset"]))
    mine = [row for row in rows if row["partition"] == rows[0]["partition"]]
    first = mine[len(mine) // 4]
    second = next(row for row in mine if row["offset"] > first["offset"] and row["key"] == first["key"])
    places = ("offset", "message_id", "origin")
    swapped = {name: first[name] for name in places}
    first.update({name: second[name] for name in places})
    second.update(swapped)
    lost = next(row for row in mine[len(mine) // 2 :] if row["key"] != first["key"])
    rows.remove(lost)
    twice = next(row for row in mine[len(mine) * 3 // 5 :] if row["key"] not in (first["key"], lost["key"]))
    rows.append(dict(twice))
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), path)
    # The checksum beside it speaks of the file that was.
    (path.parent / f".{path.name}.crc").unlink(missing_ok=True)
    correct_size(copy, path)
    number = first["partition"]
    return {
        ("reorder", number, first["offset"]),
        ("reorder", number, second["offset"]),
        ("gap", number, lost["offset"]),
        ("duplicate", number, twice["offset"]),
    }


def correct_size(archive: Path, changed: Path) -> None:
    """Has the Delta log name the present size of a file, and nothing of its contents."""
    log = archive / "_delta_log"
    # Only the commits are corrected, so nothing that was made of them may stay.
    for path in log.iterdir():
        if path.suffix != ".json":
            path.unlink() if path.is_file() else shutil.rmtree(path)
    for path in log.glob("*.json"):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        for line in lines:
            if "add" in line and archive / unquote(line["add"]["path"]) == changed:
                line["add"]["size"] = changed.stat().st_size
                line["add"].pop("stats", None)
        path.write_text("\n".join(map(json.dumps, lines)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--kills", type=int, default=2)
    parser.add_argument("--bootstrap")
    parser.add_argument("--cluster", action="store_true", help="a master and two workers; kills an executor")
    told = parser.parse_args()
    from kafka_pubsub.local.broker import LocalKafka

    with tempfile.TemporaryDirectory() as made, ExitStack() as stack:
        directory, name = Path(made), f"scene-{os.getpid()}"
        cluster = stack.enter_context(standalone(directory)) if told.cluster else None
        bootstrap = told.bootstrap or stack.enter_context(LocalKafka()).bootstrap
        play(bootstrap, name, directory, messages=told.messages, kills=told.kills, cluster=cluster)


if __name__ == "__main__":
    main()
