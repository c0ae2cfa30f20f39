"""`.ci/release.py`: nothing is changed before all is well, and afterwards there are a commit, a tag and two files."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.house.repository import ROOT

CHANGELOG = (
    "# Changelog\n\n## 1.1.0 (unreleased)\n\n### Added\n- A thing.\n\n## 1.0.0 (2026-01-02)\n\n- The first.\n"
)
PROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "thing"
version = "1.0.0"
description = "A thing."
readme = "README.md"
requires-python = ">=3.11"

[tool.hatch.build.targets.wheel]
only-include = ["thing"]
"""
FILES = {
    "pyproject.toml": PROJECT,
    "docs/changelog.md": CHANGELOG,
    "README.md": "# A thing\n",
    "thing/__init__.py": "",
    ".gitignore": "dist/\n.pytest_cache/\n__pycache__/\n",
    "justfile": "# Long.\ndeep:\n    touch deep.done\n    rm deep.done\n\nother:\n    false\n",
    "tests/unit/house/test_it.py": "def test_it() -> None:\n    pass\n",
    ".ci/smoke.py": "import sys\nprint('smoke', *sys.argv[1:])\n",
}


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)


def git(folder: Path, *words: str) -> str:
    done = run(folder, "git", "-c", "user.name=t", "-c", "user.email=t@example.org", *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a commit, and the script."""
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "t")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "t@example.org")
    for name in ("PYTEST_ADDOPTS", "GIT_DIR"):
        monkeypatch.delenv(name, raising=False)
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, "utf-8")
    shutil.copy(ROOT / ".ci" / "release.py", tmp_path / ".ci")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-q", "-m", "All")
    return tmp_path


def release(clone: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return run(clone, sys.executable, ".ci/release.py", *options)


def change(clone: Path, name: str, old: str, new: str) -> None:
    path = clone / name
    text = path.read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new), "utf-8")
    git(clone, "commit", "-q", "-a", "-m", "Change")


def test_without_write_it_says_what_it_would_do(clone: Path) -> None:
    before = git(clone, "rev-parse", "HEAD")
    done = release(clone, "1.1.0", "--date", "2026-11-27")
    assert done.returncode == 0, done.stderr
    assert '-version = "1.0.0"\n  +version = "1.1.0"\n' in done.stdout
    assert "-## 1.1.0 (unreleased)\n  +## 1.1.0 (2026-11-27)\n" in done.stdout
    for line in (
        "  $ touch deep.done\n",
        " twine check --strict dist/*\n",
        "  $ git tag -a v1.1.0 -m 'Release 1.1.0'\n",
    ):
        assert line in done.stdout
    assert (git(clone, "status", "--porcelain"), git(clone, "tag")) == ("", "")
    assert git(clone, "rev-parse", "HEAD") == before
    assert not (clone / "dist").exists()


def test_with_write_it_makes_the_commit_the_tag_and_both_files(clone: Path) -> None:
    pytest.importorskip("twine", reason="needs the extra dev: pip install -e '.[dev]'")
    (clone / "dist").mkdir()
    (clone / "dist" / "thing-0.9.0.tar.gz").write_text("old")
    done = release(clone, "1.2.0", "--date", "2026-11-27", "--write")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "smoke dist --demo" in done.stdout
    assert git(clone, "log", "-1", "--format=%s %D").startswith("Release 1.2.0 HEAD -> ")
    assert git(clone, "tag", "--points-at", "HEAD") == "v1.2.0\n"
    assert git(clone, "show", "--stat", "--format=", "HEAD").count("|") == 2
    assert (
        (clone / "docs/changelog.md").read_text("utf-8").startswith("# Changelog\n\n## 1.2.0 (2026-11-27)\n")
    )
    assert sorted(path.name for path in (clone / "dist").iterdir()) == [
        "thing-1.2.0-py3-none-any.whl",
        "thing-1.2.0.tar.gz",
    ]
    assert git(clone, "status", "--porcelain") == ""
    again = release(clone, "1.2.0", "--write")
    assert (again.returncode, "the tag v1.2.0 exists" in again.stderr) == (1, True)


@pytest.mark.parametrize("failing", ["justfile", ".ci/smoke.py", "tests/unit/house/test_it.py"])
def test_after_a_failure_everything_is_as_before(clone: Path, failing: str) -> None:
    pytest.importorskip("twine", reason="needs the extra dev: pip install -e '.[dev]'")
    new = {"justfile": "deep:\n    false\n"}.get(failing, "raise SystemExit('no')\n")
    change(clone, failing, (clone / failing).read_text("utf-8"), new)
    done = release(clone, "1.1.0", "--write")
    assert done.returncode == 1
    assert "ended with" in done.stderr
    assert (git(clone, "status", "--porcelain"), git(clone, "tag")) == ("", "")


def test_after_a_failed_tag_the_commit_stays_and_the_way_back_is_named(clone: Path) -> None:
    pytest.importorskip("twine", reason="needs the extra dev: pip install -e '.[dev]'")
    before = git(clone, "rev-parse", "HEAD")
    # A folder where git writes the tag.
    (clone / ".git" / "refs" / "tags" / "v1.1.0" / "other").mkdir(parents=True)
    (clone / ".git" / "refs" / "tags" / "v1.1.0" / "other" / "file").write_text("")
    done = release(clone, "1.1.0", "--write")
    assert done.returncode == 1
    assert "the commit 'Release 1.1.0' is made and has no tag" in done.stderr
    assert "are as they were" not in done.stderr
    assert git(clone, "log", "-1", "--format=%s") == "Release 1.1.0\n"
    assert git(clone, "status", "--porcelain") == ""
    (back,) = re.findall(r"`(git reset .*?)`", done.stderr)
    assert run(clone, *back.split()).returncode == 0
    assert git(clone, "rev-parse", "HEAD") == before


def test_a_failed_commit_leaves_both_files_as_before(clone: Path) -> None:
    pytest.importorskip("twine", reason="needs the extra dev: pip install -e '.[dev]'")
    hook = clone / ".git" / "hooks" / "pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\nexit 1\n", "utf-8")
    hook.chmod(0o755)
    done = release(clone, "1.1.0", "--write")
    assert (done.returncode, "are as they were" in done.stderr) == (1, True), done.stderr
    assert (git(clone, "status", "--porcelain"), git(clone, "tag")) == ("", "")


@pytest.mark.parametrize(
    ("name", "old", "new", "version", "said"),
    [
        ("docs/changelog.md", "- A thing.\n", "", "1.1.0", "1.1.0 (unreleased) is empty: write what changed"),
        ("docs/changelog.md", "(unreleased)", "(2026-02-03)", "1.1.0", "isn't `## VERSION (unreleased)`"),
        ("docs/changelog.md", "1.0.0", "1.1.0", "1.1.0", "1.1.0 has a section with a date already"),
        ("pyproject.toml", '"1.0.0"', '"2.0.0"', "1.1.0", "1.1.0 is older than 2.0.0"),
        ("pyproject.toml", "version =", "version  =", "1.1.0", "no line `version ="),
        ("README.md", "thing", "Thing", "1.1", ""),
        ("README.md", "thing", "Thing", "01.1.0", "is written '1.1.0'"),
        ("README.md", "thing", "Thing", "next", "'next' is no version"),
        ("justfile", "deep:", "deeper:", "1.1.0", "there is no recipe 'deep'"),
    ],
)
def test_a_release_that_cannot_be_is_refused(
    clone: Path, name: str, old: str, new: str, version: str, said: str
) -> None:
    change(clone, name, old, new)
    done = release(clone, version, "--write") if said else release(clone, version)
    assert (done.returncode, said in done.stderr) == (1 if said else 0, True), done.stderr
    assert (git(clone, "status", "--porcelain"), git(clone, "tag")) == ("", "")


def test_a_dirty_tree_is_refused_and_named(clone: Path) -> None:
    (clone / "new.py").write_text("")
    done = release(clone, "1.1.0")
    assert done.returncode == 1
    assert "1 changes that aren't committed, the first is '?? new.py'" in done.stderr


def test_outside_of_a_clone_it_says_so(clone: Path) -> None:
    shutil.rmtree(clone / ".git")
    done = release(clone, "1.1.0")
    assert (done.returncode, "a release is made in a clone" in done.stderr) == (1, True)


def test_the_real_changelog_and_project_have_the_form_that_it_expects(tmp_path: Path) -> None:
    """The script alone is taken from here: this tree may have changes."""
    for name in ("pyproject.toml", "docs/changelog.md", "justfile", ".ci/release.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-q", "-m", "All")
    done = release(tmp_path, "99.0.0")
    assert done.returncode == 0, done.stderr
    assert "KAFKA_PUBSUB_DEEP=1" in done.stdout
