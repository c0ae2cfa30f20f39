"""Makes a release: `python .ci/release.py 1.2.0` says what it would do, and with `--write` does it.

1. All that may be refused is looked at first: the tree, the tag, the version, the changelog. Nothing was changed then.
2. Deep rounds (the recipe `deep` of the justfile) run on the commit as it is. `--deep-done` says that they have.
3. The changelog's first section gets its date and pyproject.toml the version; house rules, build, `twine check` and
   `.ci/smoke.py` follow. If one of them fails, both files are put back. After a failed tag the commit stays, and the
   error says how to tag it or take it back.
4. The commit and its tag stay here: to push them publishes (.github/workflows/release.yml), and is yours to do.
"""

from __future__ import annotations

import argparse
import difflib
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import NamedTuple

from packaging.version import InvalidVersion, Version

ROOT = Path(__file__).resolve().parents[1]
PROJECT = ROOT / "pyproject.toml"
CHANGELOG = ROOT / "docs" / "changelog.md"
DIST = ROOT / "dist"
SECTION = re.compile(r"^## (\S+) \(([^)]*)\)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
VERSION_LINE = re.compile(r'^version = "([^"]*)"$', re.MULTILINE)


class Refused(Exception):
    """Why there can be no release, and what to do."""


class Release(NamedTuple):
    """A release that can be made: `files` has the new text of each file that changes."""

    version: str
    files: dict[Path, str]


def main(arguments: Sequence[str] | None = None) -> int:
    """Makes a release, or says what it would do; returns the exit code."""
    options = _options(arguments)
    try:
        release = plan(options.version, options.date)
        steps = _steps(release.version, deep=not options.deep_done)
        if options.write:
            _make(release, steps)
        else:
            _show(release, steps)
    except Refused as why:
        print(f"no release: {why}", file=sys.stderr)
        return 1
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Make a release of this commit; only say so, unless you add --write."
    )
    parser.add_argument("version", help="of the release, e.g. 1.2.0")
    parser.add_argument("--write", action="store_true", help="do it")
    parser.add_argument(
        "--deep-done", action="store_true", help="`just deep` has found nothing on this commit"
    )
    today = datetime.now(UTC).date()
    parser.add_argument(
        "--date", type=date.fromisoformat, default=today, help="of the changelog's section; today (UTC)"
    )
    return parser.parse_args(arguments)


def plan(version: str, day: date) -> Release:
    """Returns what a release changes; raises `Refused`. Nothing is written."""
    _check_tree(version)
    project, changelog = PROJECT.read_text("utf-8"), CHANGELOG.read_text("utf-8")
    _check_version(version, project)
    _check_changelog(version, changelog)
    new = SECTION.sub(
        lambda found: found[0].replace(_head(found), f"## {version} ({day})", 1), changelog, count=1
    )
    files = {PROJECT: VERSION_LINE.sub(f'version = "{version}"', project, count=1), CHANGELOG: new}
    return Release(version, files)


def _head(found: re.Match[str]) -> str:
    return f"## {found[1]} ({found[2]})"


def _check_tree(version: str) -> None:
    changed = _git("status", "--porcelain").splitlines()
    if changed:
        raise Refused(
            f"the tree has {len(changed)} changes that aren't committed, the first is {changed[0].strip()!r}: commit "
            "them or take them back"
        )
    if _git("tag", "--list", f"v{version}"):
        raise Refused(f"the tag v{version} exists: take the next version, as a release is never made twice")


def _check_version(version: str, project: str) -> None:
    try:
        wanted = Version(version)
    except InvalidVersion:
        raise Refused(f"{version!r} is no version: write three numbers, e.g. 1.2.0, or 1.2.0rc1") from None
    if str(wanted) != version:
        raise Refused(f"{version!r} is written {str(wanted)!r}: take that")
    found = VERSION_LINE.search(project)
    if found is None or tomllib.loads(project)["project"]["version"] != found[1]:
        raise Refused('pyproject.toml: no line `version = "..."` below [project]: write it')
    if wanted < Version(found[1]):
        raise Refused(f"{version} is older than {found[1]} of pyproject.toml: take a newer one")


def _check_changelog(version: str, changelog: str) -> None:
    sections = list(SECTION.finditer(changelog))
    if not sections or sections[0][2] != "unreleased":
        raise Refused(
            "docs/changelog.md: its first section isn't `## VERSION (unreleased)`: write what changed since the last "
            "release below such a line"
        )
    if not re.search(r"^- ", sections[0][3], re.MULTILINE):
        raise Refused(f"docs/changelog.md: {_head(sections[0])[3:]} is empty: write what changed")
    if version in {each[1] for each in sections[1:]}:
        raise Refused(
            f"docs/changelog.md: {version} has a section with a date already: take the next version"
        )


def _steps(version: str, *, deep: bool) -> list[tuple[str, list[str]]]:
    """What is run before and after the files are written; the name tells what it shows."""
    python = shlex.quote(sys.executable)
    before = [("deep rounds, for hours", _recipe("deep"))] if deep else []
    return [
        *before,
        ("write", []),
        ("house rules", [f"{python} -m pytest -q -n 0 tests/unit/house"]),
        ("build", [f"{python} -m hatchling build"]),
        ("check", [f"{python} -m twine check --strict dist/*", f"{python} .ci/smoke.py dist --demo"]),
        ("commit", [f"git commit -q -m 'Release {version}' -- pyproject.toml docs/changelog.md"]),
        ("tag", [f"git tag -a v{version} -m 'Release {version}'"]),
    ]


def _recipe(name: str) -> list[str]:
    """Returns the lines of a recipe of the justfile, which are plain shell."""
    text = (ROOT / "justfile").read_text("utf-8")
    found = re.search(rf"^{name}:\n((?:    .*\n)+)", text, re.MULTILINE)
    if found is None:
        raise Refused(f"justfile: there is no recipe {name!r}: write it, or say --deep-done")
    return [line.strip() for line in found[1].splitlines()]


def _show(release: Release, steps: Sequence[tuple[str, list[str]]]) -> None:
    print(f"Release {release.version} would be made so (--write does it):\n")
    for name, lines in steps:
        print(f"{name}:")
        for line in lines:
            print(f"  $ {line}")
        if name == "write":
            for path, text in release.files.items():
                print("".join(f"  {line}" for line in _difference(path, text)), end="")
    print(f"\nThen push the commit and the tag v{release.version} yourself.")


def _difference(path: Path, new: str) -> list[str]:
    name = path.relative_to(ROOT).as_posix()
    old = path.read_text("utf-8").splitlines(keepends=True)
    return list(difflib.unified_diff(old, new.splitlines(keepends=True), name, name, n=0))


def _make(release: Release, steps: Sequence[tuple[str, list[str]]]) -> None:
    before = {path: path.read_text("utf-8") for path in release.files}
    written = False
    try:
        for name, lines in steps:
            print(f"release: {name}", flush=True)
            if name == "write":
                written = True
                for path, text in release.files.items():
                    path.write_text(text, "utf-8")
                shutil.rmtree(DIST, ignore_errors=True)
            for line in lines:
                _run(line, _after_a_failure(release.version, name))
            written = written and name != "commit"
    except BaseException:
        for path, text in before.items() if written else ():
            path.write_text(text, "utf-8")
        raise
    print(
        f"Release {release.version} is committed and tagged; what is published lies in dist/. To publish it:"
    )
    print(f"  $ git push origin HEAD v{release.version}")


def _after_a_failure(version: str, step: str) -> str:
    """Returns what to do after a failed step, and what it left."""
    if step == "tag":
        tag = f"git tag -a v{version} -m 'Release {version}'"
        return (
            f"the commit 'Release {version}' is made and has no tag: mend the cause and say `{tag}`, or take the "
            "commit back with `git reset --hard HEAD~1`"
        )
    return "mend it; pyproject.toml and docs/changelog.md are as they were"


def _run(line: str, advice: str) -> None:
    code = subprocess.run(["bash", "-euo", "pipefail", "-c", line], cwd=ROOT, check=False).returncode
    if code != 0:
        raise Refused(f"`{line}` ended with {code}: {advice}")


def _git(*words: str) -> str:
    try:
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    except OSError as error:
        raise Refused(f"git can't be run: {error.strerror}: install it") from None
    if done.returncode != 0:
        raise Refused(f"`git {' '.join(words)}`: {done.stderr.strip()}: a release is made in a clone")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
