"""CI's own judgement: a skipped test fails the run, and the README's commands are the ones that CI runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.house.repository import ROOT, project

SKIPS = ROOT / ".ci" / "skips.py"
RUN = ROOT / ".ci" / "run"


def judge(tmp_path: Path, source: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "test_it.py").write_text(source)
    report = tmp_path / "junit.xml"
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        f"--junitxml={report}",
        "-p",
        "no:cacheprovider",
        "test_it.py",
    ]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, check=False)
    return subprocess.run(
        [sys.executable, str(SKIPS), str(report)], capture_output=True, text=True, check=False
    )


def test_a_run_without_skips_passes(tmp_path: Path) -> None:
    result = judge(tmp_path, "def test_a(): pass\n")
    assert (result.returncode, result.stdout) == (0, "")


@pytest.mark.parametrize(
    "source",
    [
        "import pytest\ndef test_a(): pytest.skip('no Java')\n",
        "import pytest\n@pytest.mark.skipif(True, reason='no Java')\ndef test_a(): pass\n",
        "import pytest\npytest.skip('no Java', allow_module_level=True)\n",
        "import pytest\n@pytest.mark.xfail(reason='no Java')\ndef test_a(): assert False\n",
    ],
    ids=["inside", "marked", "module", "expected"],
)
def test_a_test_that_did_not_run_fails_and_says_why(tmp_path: Path, source: str) -> None:
    result = judge(tmp_path, source + "def test_b(): pass\n")
    assert result.returncode == 1
    assert "no Java" in result.stdout


def test_a_run_without_tests_fails(tmp_path: Path) -> None:
    assert judge(tmp_path, "").returncode == 1


def shell_lines_of_the_readme() -> list[str]:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```(?:sh|bash|console|shell)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [
        line.removeprefix("$ ").strip() for block in blocks for line in block.splitlines() if line.strip()
    ]


needs_the_readme = pytest.mark.skipif(
    not shell_lines_of_the_readme(), reason="README.md shows no command yet"
)


@needs_the_readme
def test_the_readme_gives_one_command_for_the_demo_and_one_for_the_tests() -> None:
    lines = shell_lines_of_the_readme()
    assert len([line for line in lines if line.endswith("kafka-pubsub demo")]) == 1
    assert len([line for line in lines if re.search(r"\bpytest\b", line)]) == 1


@needs_the_readme
def test_the_readme_installs_extras_that_exist() -> None:
    extras = set(project()["project"]["optional-dependencies"])
    named = {
        name
        for line in shell_lines_of_the_readme()
        for group in re.findall(r"\.\[([\w,]+)\]", line)
        for name in group.split(",")
    }
    assert named
    assert named <= extras


def test_ci_is_executable_and_asks_for_no_one() -> None:
    assert os.access(RUN, os.X_OK)
    assert subprocess.run(["bash", "-n", str(RUN)], check=False).returncode == 0
