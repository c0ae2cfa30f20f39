"""`kafka-pubsub spark`: jobs are listed and explained without Spark; a mistake is a line, before a JVM starts."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from kafka_pubsub.cli.main import cli
from spark.run.job import JOBS, find
from tests.unit.cli.conftest import CommandLine
from tests.unit.house.repository import ROOT


@pytest.mark.parametrize("name", list(JOBS))
def test_every_job_explains_itself(name: str) -> None:
    result = CliRunner().invoke(cli, ["spark", "run", name, "--help"])
    assert result.exit_code == 0, result.output
    assert f"kafka-pubsub spark run {name}" in result.output
    assert "--master" in result.output
    assert find(name).name == name
    for _, line in find(name).examples:
        words = [word for word in line.split() if word.startswith("--")]
        assert set(words) <= {opt for each in find(name).parameters() for opt in each.opts}


def test_jobs_are_listed_without_spark() -> None:
    program = (
        "import sys\n"
        "from kafka_pubsub.cli.main import cli\n"
        "cli.main(['spark', 'run', '--help'], standalone_mode=False)\n"
        "print('LOADED', *sorted({'pyspark', 'py4j', 'pyarrow', 'pandas'} & set(sys.modules)))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert ran.stdout.splitlines()[-1] == "LOADED"
    assert all(f"  {name}" in ran.stdout for name in JOBS)


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["archive"],
        ["archive", "--to", "x"],
        ["archive", "--to", "x", "--topic", "a", "--pattern", "b"],
        ["archive", "--to", "x", "--topic", "a", "--lost", "maybe"],
        ["audit", "--topic", "a", "--conf", "novalue"],
        ["replay", "--topic", "a", "--to", "b"],
        ["replay", "--topic", "a", "--to", "b", "--rate", "0"],
    ],
    ids=" ".join,
)
def test_wrong_usage_is_said_before_spark_starts(run: CommandLine, arguments: list[str]) -> None:
    error = run.error("spark", "run", *arguments)
    assert (error["exit_code"], error["type"]) == (2, "UsageError")


def test_no_kafka_and_settings_that_must_stay(run: CommandLine) -> None:
    nowhere = CommandLine(run.pubsub, None)
    assert "no Kafka to talk to" in str(nowhere.error("spark", "run", "audit", "--topic", "a")["message"])
    refused = run.error(
        "spark", "run", "audit", "--topic", "a", "--config", "isolation.level=read_uncommitted"
    )
    assert "isolation.level" in str(refused["message"])


def test_without_the_extra_it_says_how_to_get_it(run: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda *_: None)
    for arguments in (["run", "audit", "--topic", "a"], ["submit-args"]):
        assert "pip install 'kafka-pubsub-orderly[spark]'" in str(run.error("spark", *arguments)["message"])


def test_what_a_program_of_ones_own_is_started_with(run: CommandLine, tmp_path: Path) -> None:
    pytest.importorskip("pyspark", reason="needs `pip install -e '.[spark]'`")
    program = tmp_path / "mine.py"
    program.touch()
    result = CliRunner().invoke(cli, ["spark", "submit-args", "--program", str(program)])
    assert result.exit_code == 0, result.output
    packages, _, last = result.output.split()
    assert (packages, last) == ("--packages", str(program))
    missing = run.error("spark", "submit-args", "--program", str(tmp_path / "none.py"))
    assert (missing["exit_code"], missing["type"]) == (2, "UsageError")


def test_what_nodes_need_is_one_zip(tmp_path: Path) -> None:
    from spark.base.spark_session import bundle

    target = bundle(tmp_path / "it.zip")
    with zipfile.ZipFile(target) as archive:
        names = set(archive.namelist())
    assert {
        "spark/reading/rows.py",
        "kafka_pubsub/subscribe/formats/record.py",
        "kafka_pubsub/model.py",
    } <= names
    assert "kafka_pubsub/schemas/delayed/v1.avsc" in names, "`waiting` decodes by it"
    assert "spark/audit/report.html.j2" in names
    program = (
        f"import sys; sys.path[:0] = [{str(target)!r}]\n"
        "import spark.run.job, kafka_pubsub.subscribe.formats.ack_map as found\n"
        "print(found.__file__)"
    )
    ran = subprocess.run(
        [sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert "it.zip" in ran.stdout


def test_packages_follow_the_installed_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    from spark.base.spark_session import packages

    assert packages("4.0.0").split(",") == [
        "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0",
        "org.apache.spark:spark-avro_2.13:4.0.0",
        "io.delta:delta-spark_2.13:4.0.0",
    ]
    assert "4.2.1" in packages("4.2.1", delta=False)
    monkeypatch.setenv("KAFKA_PUBSUB_SPARK_PACKAGES", "a:b:c")
    assert packages("4.0.0") == "a:b:c"


def test_an_audit_takes_any_first_number_unless_it_is_told_one() -> None:
    (first,) = (each for each in find("audit").parameters() if each.name == "first")
    assert first.default == "any"


def test_a_path_with_braces_stays_as_it_is_in_a_format() -> None:
    from spark.base.tables import unformatted

    path = "delta.`file:/data/{day}/rows}`"
    assert f"INTO {unformatted(path)} USING {{new}}".format(new="rows") == f"INTO {path} USING rows"


def test_the_module_that_spark_imports_by_its_name_never_fails(tmp_path: Path) -> None:
    """Though ours lacks a needed package, and a package called `spark` isn't ours and is broken."""
    bodies = {"kafka_pubsub_spark": "import nothing_of_this_name", "spark": "raise RuntimeError('broken')"}
    for name, body in bodies.items():
        (tmp_path / name / "reading").mkdir(parents=True)
        for place in (name, f"{name}/reading"):
            (tmp_path / place / "__init__.py").touch()
        (tmp_path / name / "reading" / "source.py").write_text(body)
    module = (ROOT / "spark" / "pyspark_kafka_pubsub.py").read_text()
    (tmp_path / "pyspark_kafka_pubsub.py").write_text(module)
    program = (
        f"import sys; sys.path[:0] = [{str(tmp_path)!r}]\nimport pyspark_kafka_pubsub as it; print(dir(it))"
    )
    ran = subprocess.run(
        [sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert "DefaultSource" not in ran.stdout
