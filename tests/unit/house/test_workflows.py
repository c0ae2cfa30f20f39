"""`.github/workflows`: read by the schema of their makers, with steps that this repository has.

They don't run here. Their commands do: `.ci/run`, `.ci/smoke.py`, and tools of requirements.lock.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.unit.house.repository import ROOT, project

yaml = pytest.importorskip("yaml", reason="needs the extra dev: pip install -e '.[dev]'")
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def check(path: Path) -> subprocess.CompletedProcess[str]:
    pytest.importorskip("check_jsonschema", reason="needs the extra dev: pip install -e '.[dev]'")
    command = [
        sys.executable,
        "-m",
        "check_jsonschema",
        "--builtin-schema",
        "vendor.github-workflows",
        str(path),
    ]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def steps(path: Path) -> list[dict[str, Any]]:
    jobs = yaml.safe_load(path.read_text("utf-8"))["jobs"]
    return [step for job in jobs.values() for step in job.get("steps", [])]


def step_named(workflow: str, name: str) -> str:
    """The commands of a step."""
    path = ROOT / ".github" / "workflows" / f"{workflow}.yml"
    (found,) = [step["run"] for step in steps(path) if step.get("name") == name]
    return str(found)


def write_program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n", "utf-8")
    path.chmod(0o755)


def run_step(folder: Path, commands: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs a step in a folder as the runner does."""
    return subprocess.run(
        ["bash", "-e", "-c", commands],
        cwd=folder,
        env={"PATH": f"{folder}/bin:/usr/bin:/bin", **variables},
        capture_output=True,
        text=True,
        check=False,
    )


def test_there_are_one_for_changes_and_one_for_releases() -> None:
    assert [path.stem for path in WORKFLOWS] == ["ci", "release"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_has_the_form_of_its_makers(path: Path) -> None:
    done = check(path)
    assert done.returncode == 0, done.stdout


def test_a_wrong_key_is_found(tmp_path: Path) -> None:
    text = WORKFLOWS[0].read_text("utf-8")
    assert "timeout-minutes" in text
    (tmp_path / "ci.yml").write_text(text.replace("timeout-minutes", "timeout-minute"), "utf-8")
    done = check(tmp_path / "ci.yml")
    assert (done.returncode, "timeout-minute" in done.stdout) == (1, True), done.stdout


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_actions_are_named_by_commit_with_their_tag(path: Path) -> None:
    used = [each for each in re.findall(r"uses: (.*)", path.read_text("utf-8")) if not each.startswith("./")]
    assert used
    assert [each for each in used if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", each)] == []


def test_rights_are_the_least() -> None:
    for path in WORKFLOWS:
        found = yaml.safe_load(path.read_text("utf-8"))
        assert found["permissions"] == {"contents": "read"}
        more = {name: job["permissions"] for name, job in found["jobs"].items() if "permissions" in job}
        assert more == ({"publish": {"id-token": "write"}} if path.stem == "release" else {})
        # A password would be a secret; trusted publishing has none.
        assert "secrets." not in path.read_text("utf-8")


def test_what_the_steps_call_is_here() -> None:
    lock = (ROOT / "requirements.lock").read_text("utf-8")
    lines = [line for path in WORKFLOWS for step in steps(path) for line in step.get("run", "").splitlines()]
    for script in {each for line in lines for each in re.findall(r"\.ci/[\w.]+", line)}:
        assert (ROOT / script).is_file(), script
    tools = {each for line in lines for each in re.findall(r"\.venv/bin/(\w+)", line)} - {"pip", "python"}
    assert tools == {"hatchling", "twine"}
    for tool in tools:
        assert re.search(rf"^{tool}==", lock, re.MULTILINE), f"{tool} isn't locked"


def test_nothing_is_published_before_ci_has_passed() -> None:
    ci, release = (yaml.safe_load(path.read_text("utf-8")) for path in WORKFLOWS)
    assert release["jobs"]["ci"] == {"uses": "./.github/workflows/ci.yml"}
    assert release["jobs"]["publish"]["needs"] == ["ci", "build"]
    # YAML reads the key `on` as true.
    assert "workflow_call" in ci[True]
    # A call is in the concurrency of its caller's name.
    assert "github.workflow }}" in ci["concurrency"]["group"]


def test_only_a_pull_request_ends_an_earlier_run() -> None:
    said = yaml.safe_load(WORKFLOWS[0].read_text("utf-8"))["concurrency"]
    assert said["cancel-in-progress"] == "${{ github.event_name == 'pull_request' }}"
    assert "|| github.sha" in said["group"]


def test_root_has_the_pythons_of_the_runner(tmp_path: Path) -> None:
    # sudo takes PATH from its own settings, also where it is told to keep the caller's.
    write_program(
        tmp_path / "bin" / "sudo",
        'case $1 in --preserve-env=*) shift;; esac\nexec env -i PATH=/usr/bin:/bin "$@"',
    )
    write_program(tmp_path / ".ci" / "run", 'echo "$CI $PATH"')
    done = run_step(tmp_path, step_named("ci", "everything"))
    assert done.stdout == f"true {tmp_path}/bin:/usr/bin:/bin\n", done.stderr


@pytest.mark.parametrize(("tag", "code"), [("v1.2.0", 0), ("v1.2.1", 1)])
def test_a_tag_of_another_version_says_why(tag: str, code: int, tmp_path: Path) -> None:
    write_program(tmp_path / ".venv" / "bin" / "hatchling", "echo 1.2.0")
    check_tag = step_named("release", "the tag is the version of pyproject.toml")
    done = run_step(tmp_path, check_tag, GITHUB_REF_NAME=tag)
    assert done.returncode == code, done.stderr
    assert ("::error::the tag v1.2.1 names another version" in done.stdout) == bool(code)


def test_the_pythons_are_those_that_the_project_names() -> None:
    named = [each for each in project()["project"]["classifiers"] if re.fullmatch(r".*:: 3\.\d+", each)]
    wanted = [each.rpartition(" ")[2] for each in named]
    for path in WORKFLOWS:
        (used,) = [
            step["with"]["python-version"] for step in steps(path) if "setup-python" in step.get("uses", "")
        ]
        assert sorted(used.split()) == wanted
