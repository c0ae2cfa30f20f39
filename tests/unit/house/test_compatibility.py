"""docs/compatibility.md names every deprecated name, every format on Kafka, and the versions that CI tries.

A deprecated name whose version has come fails here: remove the name and its row.
"""

from __future__ import annotations

import ast
import importlib
import json
import re
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from kafka_pubsub.flat_names import GOES_WITH, FlatNames, Renamed
from kafka_pubsub.records.frames import RECORD_HEADER
from tests.unit.house.repository import PACKAGE, ROOT, project, python_files, relative

PAGE = (ROOT / "docs" / "compatibility.md").read_text("utf-8")
NAMES = re.compile(r"^\| `([^`]+)` \| `([^`]+)` \| (\d+\.\d+\.\d+) \|$", re.MULTILINE)
FORMATS = re.compile(r"^\| ([^|]+) \| [^|]+ \| (\d+) \| (\d+)(?: to (\d+))? \|$", re.MULTILINE)
#: Where old names live, with the words of each warning; the names of `FlatNames` are read there.
SAID = {
    "kafka_pubsub/flat_names.py": r"(goes) with version \{GOES_WITH\}",
    "kafka_pubsub/subscribe/stream/stream.py": r"(Stats\.\w+) is (Stats\.\w+) now, and goes with version ([\d.]+\d)",
    "kafka_pubsub/cli/metrics.py": r"`([^`]+)` is `([^`]+)` now; the old name goes with version (\d+\.\d+\.\d+)",
}
WARNS = re.compile(r"DeprecationWarning|\bgoes with (?:the next )?version")
#: Of each format with a version: the constants of the version that is written and of the oldest that is read.
CONSTANTS = {
    "position and finished messages of a subscription": ("subscribe.formats.ack_map", "VERSION", "_OLDEST"),
    "moved message, request to release or drop (`ps-retry`)": (
        "subscribe.formats.record",
        "_VERSION",
        "_VERSION",
    ),
    "checkpoint (`checkpoint`)": ("subscribe.retry_topic.checkpoint_records", "VERSION", "VERSION"),
    "finished dead letters": ("subscribe.dead_letters.processed_marks", "_VERSION", "_VERSION"),
    "delayed message on its way (`delayed`, `delay_request`, `delay_cancel`)": (
        "delays.records",
        "VERSION",
        "VERSION",
    ),
    "how far a router has come": ("delays.progress", "_INGEST", "_TIER"),
    "message to several topics (`stage`, `proposal`, `receipt`, `alive`, `gone`)": (
        "multicast.records",
        "_VERSION",
        "_VERSION",
    ),
    "several of them in one record": ("multicast.batch", "_VERSION", "_VERSION"),
    "how far a sequencer has come": ("multicast.progress", "_VERSION", "_VERSION"),
}
#: Other versions: an ack id lives in a process, the checkpoints of Spark on its disk.
ELSEWHERE = {"kafka_pubsub/model.py", "spark/run/ownership.py"}


def deprecated() -> dict[str, tuple[str, str]]:
    """By the code: each old name, its new name, and the version with which the old name goes."""
    found = {
        f"PubSub.{name}": (f"PubSub.{each._new}", GOES_WITH)
        for name, each in vars(FlatNames).items()
        if isinstance(each, Renamed)
    }
    for name, words in SAID.items():
        match = re.search(words, source(ROOT / name))
        assert match, f"{name} doesn't say {words}"
        if len(match.groups()) == 3:
            found[match[1]] = (match[2], match[3])
    return found


def source(path: Path) -> str:
    """The text of a module, whose strings over several lines are joined."""
    return re.sub(r'"\s+f?"', "", path.read_text("utf-8"))


def listed() -> dict[str, tuple[str, str]]:
    return {old: (new, goes) for old, new, goes in NAMES.findall(PAGE)}


def modules() -> list[Path]:
    return [
        path for path in python_files() if path.is_relative_to(PACKAGE) or path.is_relative_to(ROOT / "spark")
    ]


def strings(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes):
            found.add(node.value if isinstance(node.value, str) else node.value.decode("latin-1"))
    return found


def overdue(names: dict[str, tuple[str, str]], version: str) -> list[str]:
    """Old names whose version has come."""
    return [old for old, (_, goes) in names.items() if Version(goes) <= Version(version)]


def test_every_deprecated_name_is_listed_with_its_new_one_and_its_version() -> None:
    assert listed() == deprecated()


def test_no_deprecated_name_outlives_its_version() -> None:
    assert overdue(deprecated(), project()["project"]["version"]) == []
    assert "Stats.relocated" in overdue(deprecated(), "0.2.0")


def test_each_module_that_warns_of_an_old_name_is_looked_at() -> None:
    assert {relative(path) for path in modules() if WARNS.search(source(path))} == set(SAID)


@pytest.mark.parametrize("name", sorted(CONSTANTS))
def test_the_versions_of_a_format_are_those_of_the_program(name: str) -> None:
    rows = {
        label: (written, oldest, newest or oldest) for label, written, oldest, newest in FORMATS.findall(PAGE)
    }
    module, written, oldest = CONSTANTS[name]
    code = importlib.import_module(f"kafka_pubsub.{module}")
    now = str(getattr(code, written))
    assert rows[name] == (now, str(getattr(code, oldest)), now)


def test_every_format_with_a_version_has_a_row() -> None:
    named = {f"kafka_pubsub/{module.replace('.', '/')}.py" for module, *_ in CONSTANTS.values()}
    constant = re.compile(r"^_?\w*VERSION\b.* = \W?\d", re.MULTILINE)
    having = {relative(path) for path in modules() if constant.search(path.read_text("utf-8"))}
    assert having - named - ELSEWHERE == set()
    assert {label for label, *_ in FORMATS.findall(PAGE)} == set(CONSTANTS)


def test_every_schema_has_a_row_with_its_newest_version() -> None:
    for folder in sorted(path for path in (ROOT / "schemas").iterdir() if path.is_dir()):
        (newest,) = [written for label, written, *_ in FORMATS.findall(PAGE) if f"`{folder.name}`" in label]
        assert f"v{newest}.avsc" == max(path.name for path in folder.glob("v*.avsc"))


def test_every_header_of_ours_is_listed() -> None:
    written = {
        each for path in modules() for each in strings(path) if re.fullmatch(r"ps-[a-z]+(?:-[a-z]+)*-?", each)
    }
    assert "ps-retry" in written
    rows = set(re.findall(r"`(ps-[a-z-]+\*?)`", PAGE))
    assert f"`{RECORD_HEADER}`" in PAGE
    missing = {each for each in written if each not in rows and not each.startswith("ps-dead-")} - {"ps-"}
    assert missing == set()
    assert "ps-dead-*" in rows


def test_every_kind_of_the_catalog_is_listed() -> None:
    text = (PACKAGE / "log" / "kafka" / "catalog.py").read_text("utf-8")
    kinds = re.findall(r'\bKind\("(\w+)"', text)
    (said,) = re.findall(r"^\| catalog: kinds (.*?) \|", PAGE, re.MULTILINE)
    assert kinds
    assert re.findall(r"`(\w+)`", said) == kinds


def row(part: str) -> str:
    (found,) = re.findall(rf"^\| {part} \| ([^|]+) \|", PAGE, re.MULTILINE)
    return str(found)


def test_the_pythons_are_those_of_the_project() -> None:
    metadata = project()["project"]
    pythons = [each.rpartition(" ")[2] for each in metadata["classifiers"] if re.search(r":: 3\.\d+$", each)]
    assert row("Python") == ", ".join(pythons)
    assert pythons[0] in SpecifierSet(metadata["requires-python"])


def test_the_kafkas_are_those_that_ci_tries() -> None:
    lock = json.loads((PACKAGE / "local" / "kafka.lock.json").read_text("utf-8"))
    tried = re.findall(r"\bother_kafka=(\d+\.\d+\.\d+)", (ROOT / ".ci" / "run").read_text("utf-8"))
    versions = sorted([lock["kafka"], *tried], key=Version)
    assert row("Apache Kafka") == f"{versions[0]} to {versions[-1]}"


def test_the_sparks_are_those_that_the_extra_allows() -> None:
    (spark,) = [each for each in project()["project"]["optional-dependencies"]["spark"] if "pyspark" in each]
    first, last = re.fullmatch(r"(.*) to (.*)", row("Apache Spark")).groups()  # type: ignore[union-attr]  # else it fails
    allowed = SpecifierSet(spark.removeprefix("pyspark"))
    assert first in allowed
    assert last in allowed
    numbers = Version(last).release
    assert f"{numbers[0]}.{numbers[1]}.{numbers[2] + 1}" not in allowed
