"""Texts that no file of this repository may contain: addresses of package registries, and paths of a machine.

Package clients find their registry by themselves, so an address here would only override what a machine has
set up for good reasons. A path of a single machine is wrong on all others.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.unit.house.repository import files, relative

# The brackets keep a pattern from matching its own source.
REGISTRY = re.compile(
    r"""
    \b(?:[\w-]+\.)*(?:
        pyp[i]\.(?:org|python\.org) | pythonhoste[d]\.org
      | (?:repo\d*|central|search)\.mave[n]\.(?:org|com) | repo\.mave[n]\.apache\.org | mave[n]central\b
      | (?:oss|s01)\.sonatyp[e]\.org | packages\.confluen[t]\.io
      | npmj[s]\.(?:org|com) | crate[s]\.io | conda\.anacond[a]\.org
      | (?:registry-1|hub|index)\.docke[r]\.(?:io|com)
      | proxy\.golan[g]\.org | rubygem[s]\.org
    )
    | --(?:extra-)?index-ur[l]\b | --find-link[s]\b | --trusted-hos[t]\b
    | \b(?:PIP|UV)_(?:EXTRA_)?INDEX_UR[L]\b | \b(?:PIP|UV)_FIND_LINK[S]\b
    | (?:extra-|default-)?index-ur[l]\s*= | \[\[tool\.uv\.inde[x]\]\]
    """,
    re.VERBOSE | re.IGNORECASE,
)
MACHINE = re.compile(
    r"""
    (?<![\w.~-])/(?:home|Users)/[\w.-]+/        # somebody's directory
  | (?<![\w.~-])/roo[t]/[\w.]
  | (?<![\w.~-])/wor[k]/[\w.]                   # a checkout at the top of the disk
  | (?<![\w.~-])/tmp/[\w.-]+/[\w.-]             # a scratch directory that was there once
  | \b[A-Z]:\\Users\\
    """,
    re.VERBOSE,
)


def texts() -> list[Path]:
    return [path for path in files() if b"\0" not in path.read_bytes()]


def finds(pattern: re.Pattern[str], path: Path) -> list[str]:
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    return [
        f"{relative(path)}:{n}: {line.strip()}" for n, line in enumerate(lines, 1) if pattern.search(line)
    ]


@pytest.mark.parametrize("pattern", [REGISTRY, MACHINE], ids=["registry", "machine"])
def test_no_file_says_where_packages_come_from_or_where_it_was_written(pattern: re.Pattern[str]) -> None:
    assert [find for path in texts() for find in finds(pattern, path)] == []


@pytest.mark.parametrize(
    "line",
    [
        "https://" + "pypi" + ".org/simple",
        "https://files." + "pythonhosted" + ".org/packages/x.whl",
        "https://repo1." + "maven" + ".org/maven2",
        "https://repo." + "maven" + ".apache.org/maven2",
        "pip install --" + "index-url https://example.com",
        "PIP_" + "INDEX_URL=x",
        "index-" + "url = https://example.com",
    ],
)
def test_registries_are_recognised(line: str) -> None:
    assert REGISTRY.search(line)


@pytest.mark.parametrize(
    "line",
    ["cd /" + "home/ann/kafka", "see /" + "root/x.log", "-o /" + "work/main", "ls /" + "tmp/run-1/log"],
)
def test_paths_of_a_machine_are_recognised(line: str) -> None:
    assert MACHINE.search(line)


@pytest.mark.parametrize(
    "line",
    [
        "https://kafka.apache.org/documentation",
        "http://maven.apache.org/SETTINGS/1.2.0",
        "mkdir /tmp/kafka",
        "~/.cache/kafka_pubsub",
        "docs/work/x",
        "/opt/kafka",
    ],
)
def test_ordinary_lines_pass(line: str) -> None:
    assert not REGISTRY.search(line)
    assert not MACHINE.search(line)
