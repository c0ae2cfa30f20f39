"""The wheel holds the whole package: what is imported, and the data and the type marker beside it."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

from tests.unit.house.repository import PACKAGE, ROOT, files, relative


@pytest.fixture(scope="module")
def contents(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    directory = tmp_path_factory.mktemp("wheel")
    (wheel,) = WheelBuilder(str(ROOT)).build(directory=str(directory), versions=["standard"])
    with zipfile.ZipFile(Path(wheel)) as archive:
        return set(archive.namelist())


def test_every_file_of_the_package_is_in_the_wheel(contents: set[str]) -> None:
    package = {relative(path) for path in files() if path.is_relative_to(PACKAGE)}
    assert "kafka_pubsub/py.typed" in package
    assert package - contents == set()


def test_the_pipeline_is_in_the_wheel_under_a_name_of_its_own(contents: set[str]) -> None:
    pipeline = {relative(path) for path in files() if path.is_relative_to(ROOT / "spark")}
    assert "spark/transforms/rows.py" in pipeline
    assert {f"kafka_pubsub_{path}" for path in pipeline} - contents == set()


def test_nothing_else_is_in_the_wheel_but_its_metadata_and_the_licence(contents: set[str]) -> None:
    assert [name for name in contents if name.endswith((".pyc", ".toml"))] == []
    others = {name for name in contents if not name.startswith(("kafka_pubsub/", "kafka_pubsub_spark/"))}
    assert {name.partition("/")[0].endswith(".dist-info") for name in others} == {True}
    assert [name for name in others if name.endswith("/licenses/LICENSE")]
