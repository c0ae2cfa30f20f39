"""docs/spark.md: every block runs, in the order of the page, on a real topic."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import pytest

from kafka_pubsub import PubSub
from kafka_pubsub.local.pytest_plugin import RunningKafka
from tests.spark.session.support import Runner

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "spark.md"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def blocks(page: Path = PAGE) -> list[tuple[str, str]]:
    """Language and text of each block."""
    return BLOCK.findall(page.read_text(encoding="utf-8"))


def test_the_first_line_of_the_page_gives_a_function_in_a_new_process() -> None:
    first = next(text for kind, text in blocks() if kind == "python").splitlines()[0]
    program = (
        f"import sys, spark\nsys.modules['kafka_pubsub_spark'] = spark\n{first}\nassert callable(session)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr


def test_every_block_of_the_page_runs(
    spark: SparkSession, kafka: RunningKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import spark as ours

    monkeypatch.setitem(sys.modules, "kafka_pubsub_spark", ours)
    with PubSub(kafka.bootstrap) as ps:
        for topic in ("orders", "order-lines", "copies"):
            ps.create_topic(topic, partitions=1, exist_ok=True)
        ps.topic("orders").publish(b"\0" * 8, ordering_key="ann").result(30)
    names: dict[str, Any] = {}
    ran = []
    for kind, written in blocks():
        text = written.replace("localhost:9092", kafka.bootstrap).replace("/data/", f"{tmp_path}/")
        if kind == "python":
            exec(compile(text, str(PAGE), "exec"), names)
        elif "spark-submit" in text:
            _check_submit(text)
        elif "start-connect-server" in text:
            _check_connect(text, tmp_path)
        elif kind == "properties":
            _check_metrics(text)
        elif kind == "sh":
            for line in text.splitlines():
                _run(Runner(spark, kafka.bootstrap), line)
        else:
            pytest.fail(f"a block of {kind or 'no language'}: have it run here")
        ran.append(kind)
    assert ran.count("python") >= 5
    assert names["archived"](spark, f"{tmp_path}/archive").count() >= 1
    assert list((tmp_path / "copy").glob("date=*/*.parquet"))


def test_the_job_of_the_page_on_own_jobs_runs_and_writes_each_message_once(
    spark: SparkSession, kafka: RunningKafka, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import spark as ours

    monkeypatch.setitem(sys.modules, "kafka_pubsub_spark", ours)
    ((kind, text), (shell, commands)) = blocks(ROOT / "docs" / "spark-job.md")
    assert (kind, shell) == ("python", "sh")
    _check_programs(commands)
    assert len(text.splitlines()) <= 30
    names: dict[str, Any] = {"__name__": "orders_table"}
    exec(compile(text, "spark-job.md", "exec"), names)
    table = str(tmp_path / "orders")

    def rows(path: str) -> list[Any]:
        return spark.read.format("delta").load(path).collect()

    with PubSub(kafka.bootstrap) as ps:
        ps.create_topic(name, partitions=1)
        for body in (b'{"id": 1, "amount": 5}', b'{"id": 2, "amount": -5}', b"no JSON"):
            ps.topic(name).publish(body, ordering_key="ann").result(30)
        names["main"](kafka.bootstrap, name, table)
        assert [(row.id, row.amount) for row in rows(table)] == [(1, 5.0)]
        assert sorted(row.reason for row in rows(f"{table}-rejects")) == [
            "expected amount >= 0",
            "isn't a JSON object",
        ]
        # As a kill leaves it between the tables and the checkpoint: the batch is repeated.
        shutil.rmtree(f"{table}-checkpoint/commits")
        names["main"](kafka.bootstrap, name, table)
    assert (len(rows(table)), len(rows(f"{table}-rejects"))) == (1, 2)


def _run(runner: Runner, line: str) -> None:
    """A command, in the session of the suite."""
    words = shlex.split(line)
    assert words[:2] == ["kafka-pubsub", "-b"], line
    assert words[3:5] == ["spark", "run"], line
    assert runner.typed(words[5], words[6:]).ok


def _check_submit(text: str) -> None:
    """The commands for a cluster: drivers/test_standalone.py and test_cluster_mode.py run them."""
    from spark.run.job import find
    from spark.submit import command

    for line in text.replace("\\\n", " ").splitlines():
        assert line.startswith("spark-submit --master ")
        name, *options = shlex.split(line.partition(")")[2])
        with click.Context(command(find(name))) as context:
            context.command.parse_args(context, options)


def _check_programs(text: str) -> None:
    """The commands of the examples have options that these know; test_examples.py runs the programs."""
    for line in text.replace("\\\n", " ").splitlines():
        program, options = re.findall(r"(\w+\.py)\)? (.*)", line)[0]
        known = re.findall(r'"(--[a-z-]+)"', (ROOT / "spark" / "examples" / program).read_text())
        assert set(re.findall(r"--[a-z-]+", options)) <= set(known), line


def _check_connect(text: str, directory: Path) -> None:
    """The server's start, twice in a shell, up to its options: drivers/test_connect.py starts a server."""
    programs = directory / "programs"
    programs.mkdir()
    for name, line in (
        ("kafka-pubsub", f'exec {sys.executable} -m kafka_pubsub.cli.main "$@"'),
        ("start-connect-server.sh", 'echo "with $PYTHONPATH: $@"'),
    ):
        (programs / name).write_text(f"#!/bin/sh\n{line}\n")
        (programs / name).chmod(0o755)
    told = subprocess.run(
        ["sh", "-ec", f"{text}\n{text}"],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PATH": f"{programs}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 0, told.stderr
    zipped = f"{directory}/kafka_pubsub.zip"
    first, second = told.stdout.splitlines()
    assert first == second
    assert first.startswith(f"with {zipped}: ")
    assert f"spark.executorEnv.PYTHONPATH={zipped}" in first


def _check_metrics(text: str) -> None:
    """The settings are those of --metrics-port; drivers/test_metrics.py reads the served text."""
    from spark.run.progress import metrics_conf

    told = dict(line.split() for line in text.splitlines())
    assert told == {name: value for name, value in metrics_conf(4040).items() if name in told}
    assert len(told) == 6
