"""CI's own judgement: a skipped test fails the run, and the README's commands are the ones that CI runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.house.repository import ROOT, project

JUDGEMENT = ROOT / ".ci" / "verdict.py"
RUN = ROOT / ".ci" / "run"


def run_tests(tmp_path: Path, source: str, report: str) -> None:
    (tmp_path / "test_it.py").write_text(source)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "--junitxml",
        report,
        "-p",
        "no:cacheprovider",
        "test_it.py",
    ]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, check=False)


def judgement_on(tmp_path: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(JUDGEMENT), *options, str(tmp_path)], capture_output=True, text=True, check=False
    )


def judge(tmp_path: Path, source: str) -> subprocess.CompletedProcess[str]:
    run_tests(tmp_path, source, "stage.xml")
    return judgement_on(tmp_path)


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
    assert judgement_on(tmp_path, "--summary").stdout == "0 passed, 0 failed, 0 skipped\n"


def source_of(*do: str) -> str:
    return "".join(f"def test_{number}(): assert {what!r} == 'pass'\n" for number, what in enumerate(do))


def second_tries(tmp_path: Path, tests: int) -> None:
    """So many tests fail, and pass when they are run again."""
    run_tests(tmp_path, source_of(*["fail"] * tests, "pass"), "stage.xml")
    run_tests(tmp_path, source_of(*["pass"] * tests), "stage.again.xml")


@pytest.mark.parametrize("tests", [1, 2, 5])
def test_tests_that_pass_in_the_second_try_are_listed_with_their_first_failure(
    tmp_path: Path, tests: int
) -> None:
    second_tries(tmp_path, tests)
    assert (judgement_on(tmp_path).returncode, judgement_on(tmp_path).stdout) == (0, "")
    lines = judgement_on(tmp_path, "--summary").stdout.splitlines()
    assert lines[-1] == f"{tests + 1} passed, 0 failed, 0 skipped"
    assert lines[-1 - 2 * tests : -1] == [
        line
        for number in range(tests)
        for line in (
            f"passed only in the second try: test_it::test_{number}",
            f"  test_it.py:{number + 1}: AssertionError: assert 'fail' == 'pass'",
        )
    ]


def test_a_test_that_was_cut_short_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stage that has no time left is interrupted; a test that hangs would otherwise be in no report."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    (tmp_path / "conftest.py").write_text(
        "from tests.unfinished import Unfinished\n"
        "def pytest_configure(config): config.pluginmanager.register(Unfinished(config))\n"
    )
    run_tests(tmp_path, "def test_a(): pass\ndef test_b(): raise KeyboardInterrupt\n", "stage.xml")
    lines = judgement_on(tmp_path, "--summary").stdout.splitlines()
    assert lines[-2:] == ["unfinished: test_it.py::test_b after 0 s", "1 passed, 0 failed, 0 skipped"]


def test_more_than_five_tests_that_pass_only_in_the_second_try_fail_the_run(tmp_path: Path) -> None:
    second_tries(tmp_path, 6)
    result = judgement_on(tmp_path)
    assert (result.returncode, result.stdout) == (1, "6 tests passed only in the second try, 5 may\n")


def test_of_three_tries_two_may_not_fail(tmp_path: Path) -> None:
    run_tests(tmp_path, source_of("fail"), "stage.broken.xml")
    run_tests(tmp_path, source_of("fail", "pass"), "stage.xml")
    run_tests(tmp_path, source_of("pass"), "stage.again.xml")
    result = judgement_on(tmp_path)
    assert (result.returncode, result.stdout.startswith("failed: test_it::test_0: ")) == (1, True)
    # pytest may end like this without an error of its own.
    assert judgement_on(tmp_path, "--summary").stdout.endswith("\n2 passed, 1 failed, 0 skipped\n")


def test_a_stage_runs_again_when_pytest_broke_off_and_then_what_failed(tmp_path: Path) -> None:
    """The function of `.ci/run`, with a pytest that breaks off, fails, and passes."""
    text = RUN.read_text(encoding="utf-8")
    (function,) = re.findall(r"^with_second_try\(\) \{\n(?:.*\n)*?\}$", text, re.MULTILINE)
    pytest_ = tmp_path / ".venv" / "bin" / "pytest"
    pytest_.parent.mkdir(parents=True)
    pytest_.write_text(
        """#!/bin/bash
echo "$PYTEST_ADDOPTS $*" >>calls
touch "${PYTEST_ADDOPTS##*--junitxml=}"
exit "$(sed -n "$(wc -l <calls)p" codes)"
"""
    )
    pytest_.chmod(0o755)
    script = (
        f"set -euo pipefail\nreports=. scratch=.\n{function}\n"
        "with_second_try fast .venv/bin/pytest -n auto --junit-prefix=other"
    )
    for codes, status, reports in (
        ("3 1 0", 0, ["fast.again.xml", "fast.broken.xml", "fast.xml"]),
        ("3 0", 0, ["fast.broken.xml", "fast.xml"]),
        ("3 3", 1, ["fast.broken.xml", "fast.xml"]),
        ("1 5", 0, ["fast.again.xml", "fast.xml"]),
        ("2", 1, ["fast.xml"]),
    ):
        (tmp_path / "calls").unlink(missing_ok=True)
        for report in tmp_path.glob("*.xml"):
            report.unlink()
        (tmp_path / "codes").write_text(codes.replace(" ", "\n") + "\n")
        done = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, check=False)
        assert (done.returncode, sorted(each.name for each in tmp_path.glob("*.xml"))) == (status, reports)
        calls = (tmp_path / "calls").read_text().splitlines()
        assert len(calls) == len(codes.split())
        assert all("--junit-prefix=other" in each for each in calls), (
            "or a second try counts for another test"
        )


def test_a_failure_of_a_fixture_says_where_too(tmp_path: Path) -> None:
    source = "import pytest\n@pytest.fixture\ndef a(): raise OSError('no broker')\ndef test_0(a): pass\n"
    run_tests(tmp_path, source, "stage.xml")
    run_tests(tmp_path, source_of("pass"), "stage.again.xml")
    told = judgement_on(tmp_path, "--summary").stdout
    assert 'test_it.py:3: failed on setup with "OSError: no broker"' in told


def test_what_fails_twice_fails_the_run(tmp_path: Path) -> None:
    run_tests(tmp_path, source_of("fail", "pass"), "stage.xml")
    run_tests(tmp_path, source_of("fail"), "stage.again.xml")
    result = judgement_on(tmp_path)
    said = "failed: test_it::test_0: test_it.py:1: AssertionError: assert 'fail' == 'pass'\n"
    assert (result.returncode, result.stdout) == (1, said)
    failure = "  test_it.py:1: AssertionError: assert 'fail' == 'pass'\n"
    assert judgement_on(tmp_path, "--summary").stdout.endswith(
        f"\nfailed: test_it::test_0\n{failure}{failure}1 passed, 1 failed, 0 skipped\n"
    )


def test_an_error_inside_of_pytest_is_a_failure_that_says_which_one(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(
        "def pytest_runtest_logreport(report):\n    raise OSError('no space left')\n"
    )
    run_tests(tmp_path, source_of("pass"), "stage.xml")
    assert judgement_on(tmp_path).returncode == 1
    lines = judgement_on(tmp_path, "--summary").stdout.splitlines()
    assert lines[-3] == "failed: pytest::internal in stage"
    assert lines[-2].startswith("  internal error: ")
    assert lines[-2].endswith("OSError: no space left")
    assert lines[-1] == "0 passed, 1 failed, 0 skipped"


def test_an_error_inside_of_pytest_that_does_not_come_again_is_listed(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(
        "def pytest_runtest_logreport(report):\n    raise OSError('no space left')\n"
    )
    run_tests(tmp_path, source_of("pass"), "stage.broken.xml")
    (tmp_path / "conftest.py").unlink()
    run_tests(tmp_path, source_of("pass", "fail"), "stage.xml")
    run_tests(tmp_path, source_of("pass", "pass"), "stage.again.xml")
    assert judgement_on(tmp_path).returncode == 0
    told = judgement_on(tmp_path, "--summary").stdout
    assert "passed only in the second try: pytest::internal in stage\n  internal error: " in told
    assert told.endswith("\n3 passed, 0 failed, 0 skipped\n")


def test_a_test_that_took_its_process_down_and_passed_in_a_new_one_counts_as_a_second_try(
    tmp_path: Path,
) -> None:
    run_tests(tmp_path, source_of("pass"), "stage.xml")
    case = '<testcase classname="test_it" name="test_0" />'
    crashed = case.replace("/>", '><failure message="worker crashed">at once</failure></testcase>')
    report = tmp_path / "stage.xml"
    once = re.sub(r"<testcase[^>]*/>", crashed + case, report.read_text())
    report.write_text(once)
    assert "passed only in the second try: test_it::test_0\n  worker crashed\n" in (
        judgement_on(tmp_path, "--summary").stdout
    )


def test_the_slowest_tests_of_all_stages_are_shown_with_the_longer_of_their_tries(tmp_path: Path) -> None:
    def report(stage: str, *cases: tuple[str, float]) -> None:
        lines = "".join(f'<testcase classname="m" name="{name}" time="{time}"/>' for name, time in cases)
        (tmp_path / f"{stage}.xml").write_text(f"<testsuite>{lines}</testsuite>")

    report("fast", *((f"t{number}", number / 10) for number in range(40)))
    report("slow", ("long", 61.25), ("short", 0.1))
    report("slow.again", ("short", 9))
    lines = judgement_on(tmp_path, "--summary").stdout.splitlines()
    assert lines[:4] == [
        "the 30 slowest tests, in seconds with their fixtures:",
        "   61.2  m::long",
        "    9.0  m::short",
        "    3.9  m::t39",
    ]
    assert lines[30:] == ["    1.2  m::t12", "42 passed, 0 failed, 0 skipped"]


def test_what_a_test_measured_is_shown_with_the_last_of_its_figures(tmp_path: Path) -> None:
    source = (
        "def test_0(request): request.node.user_properties.append(('figure', 'stall {} s')); assert {} == 8\n"
    )
    run_tests(tmp_path, source.format(9, 9), "stage.xml")
    run_tests(tmp_path, source.format(8, 8), "stage.again.xml")
    lines = judgement_on(tmp_path, "--summary").stdout.splitlines()
    assert [line for line in lines if "stall" in line] == ["measured: test_it::test_0: stall 8 s"]


def shell_lines_of_the_readme() -> list[str]:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```(?:sh|bash|console|shell)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [
        line.removeprefix("$ ").strip() for block in blocks for line in block.splitlines() if line.strip()
    ]


def test_the_readme_gives_one_command_for_the_demo_and_one_for_the_tests() -> None:
    lines = shell_lines_of_the_readme()
    assert len([line for line in lines if line.endswith("kafka-pubsub demo")]) == 1
    assert len([line for line in lines if re.search(r"\bpytest\b", line)]) == 1


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


def test_a_run_that_fails_shows_the_time_of_each_stage_and_the_counts_last(tmp_path: Path) -> None:
    # A Python that is too old ends the first stage; the summary is made all the same.
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\n[ "$1" != -c ] && exec {sys.executable} "$@"\nexit 1\n')
    python.chmod(0o755)
    environment = {
        **os.environ,
        "PYTHON": str(python),
        "TMPDIR": str(tmp_path),
        "KAFKA_PUBSUB_DAY": "20261125",
    }
    done = subprocess.run([str(RUN)], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    assert done.stdout.startswith("ci: seeds of the day: KAFKA_PUBSUB_DAY=20261125\n")
    last = done.stdout.splitlines()[-4:]
    assert re.fullmatch(r"ci: install, locked by hash FAILED after \d+ s", last[0])
    assert last[1] == "ci: seconds of each stage:"
    assert re.fullmatch(r" +\d+  install, locked by hash", last[2])
    assert last[3] == "0 passed, 0 failed, 0 skipped"
    assert [path.name for path in tmp_path.iterdir()] == ["python"]


def test_ci_is_executable_and_asks_for_no_one() -> None:
    assert os.access(RUN, os.X_OK)
    assert subprocess.run(["bash", "-n", str(RUN)], check=False).returncode == 0
