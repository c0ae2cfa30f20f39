"""The wheel holds the whole package: the modules, and the data and the type marker beside them."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder

from tests.unit.house.repository import PACKAGE, ROOT, files, relative


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with what the wheel installs."""
    directory = tmp_path_factory.mktemp("wheel")
    (wheel,) = WheelBuilder(str(ROOT)).build(directory=str(directory), versions=["standard"])
    with zipfile.ZipFile(Path(wheel)) as archive:
        archive.extractall(directory / "installed")
    return directory / "installed"


FOUND_BY_SPARK = "spark/pyspark_kafka_pubsub.py"


@pytest.fixture(scope="module")
def contents(installed: Path) -> set[str]:
    return {path.relative_to(installed).as_posix() for path in installed.rglob("*") if path.is_file()}


def test_every_file_of_the_package_is_in_the_wheel(contents: set[str]) -> None:
    package = {relative(path) for path in files() if path.is_relative_to(PACKAGE)}
    assert "kafka_pubsub/py.typed" in package
    assert package - contents == set()


def test_the_pipeline_is_in_the_wheel_under_a_name_of_its_own(contents: set[str]) -> None:
    # Spark finds the format by this module, which is at the top.
    pipeline = {relative(path) for path in files() if path.is_relative_to(ROOT / "spark")} - {FOUND_BY_SPARK}
    assert "spark/reading/rows.py" in pipeline
    assert {f"kafka_pubsub_{path}" for path in pipeline} - contents == set()


def test_nothing_else_is_in_the_wheel_but_its_metadata_and_the_licence(contents: set[str]) -> None:
    assert [name for name in contents if name.endswith((".pyc", ".toml"))] == []
    assert "pyspark_kafka_pubsub.py" in contents, "by it Spark finds the format"
    ours = ("kafka_pubsub/", "kafka_pubsub_spark/", "pyspark_kafka_pubsub.py")
    others = {name for name in contents if not name.startswith(ours)}
    assert {name.partition("/")[0].endswith(".dist-info") for name in others} == {True}
    assert [name for name in others if name.endswith("/licenses/LICENSE")]


def test_where_it_is_installed_the_command_line_finds_the_pipeline(installed: Path, tmp_path: Path) -> None:
    program = (
        f"import sys; sys.path[:0] = [{str(installed)!r}]\n"
        "from kafka_pubsub.cli.spark import pipeline\n"
        "from kafka_pubsub.cli.main import cli\n"
        "cli.main(['spark', 'run', 'archive', '--help'], standalone_mode=False)\n"
        "print(pipeline(), sys.modules['kafka_pubsub_spark.run.job'].__file__)"
    )
    ran = subprocess.run(
        [sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    last = ran.stdout.splitlines()[-1]
    assert last.startswith(f"kafka_pubsub_spark {installed}"), last


def test_where_it_is_installed_the_zip_for_drivers_has_each_file_once(
    installed: Path, tmp_path: Path
) -> None:
    target = tmp_path / "driver.zip"
    program = (
        f"import sys; sys.path[:0] = [{str(installed)!r}]\n"
        "from pathlib import Path\n"
        "from kafka_pubsub_spark.base.spark_session import bundle\n"
        f"bundle(Path({str(target)!r}), driver=True)"
    )
    subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, check=True, cwd=tmp_path)
    with zipfile.ZipFile(target) as archive:
        names = archive.namelist()
    assert sorted(set(names)) == sorted(names)
    wanted = {
        "pyspark_kafka_pubsub.py",
        "kafka_pubsub_spark/submit.py",
        "kafka_pubsub/schemas/checkpoint/v1.avsc",
    }
    assert wanted <= set(names)


def test_the_source_archive_is_the_repository(tmp_path: Path) -> None:
    # Who packages it runs the tests in it, which read pages, manifests and CI's files.
    (archive,) = SdistBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    with tarfile.open(archive) as opened:
        names = {member.name.partition("/")[2] for member in opened.getmembers() if member.isfile()}
    ours = {relative(path) for path in files()}
    assert {"LICENSE", "README.md", "schemas/checkpoint/v1.avsc", "spark/submit.py", ".ci/run"} <= ours
    assert ours - names == set()
    assert names - ours == {"PKG-INFO"}
