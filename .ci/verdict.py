"""Judges a whole CI run by the reports of its stages, and prints what passed only in the second try.

Usage: verdict.py DIRECTORY
       verdict.py --count DIRECTORY

DIRECTORY holds one JUnit file for each stage, `NAME.xml`, and one for the tests that were run again, `NAME.again.xml`.

Rules
1. A test that did not run fails the run: skipping for want of a part (Java, a broker, a package) is right on a
   contributor's machine and a hole here. ALLOWED names the exceptions, each with its reason in a comment.
2. A test that failed and then passed is listed. More than one of them fails the run.
3. `--count` judges nothing. It prints the counts of all stages in one line, the second try instead of the first.
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

# Test ids as `module::name`, without parameters.
ALLOWED: frozenset[str] = frozenset()

#: How many tests may pass only in the second try: a broker that is killed on a busy machine can surprise one test.
MOST_FLAKY = 1

AGAIN = ".again.xml"


class Result(NamedTuple):
    """How a test ended."""

    kind: Literal["passed", "failed", "skipped"]
    reason: str = ""


def tries_of(report: Path) -> Iterator[tuple[str, Result]]:
    """Each test of a report by id, in order; one that took its process down is reported again when it ran anew."""
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        yield f"{case.get('classname', '')}::{case.get('name', '')}", _result(case)


def _result(case: ElementTree.Element) -> Result:
    if case.find("failure") is not None or case.find("error") is not None:
        return Result("failed")
    skipped = case.find("skipped")
    if skipped is None:
        return Result("passed")
    return Result("skipped", skipped.text or skipped.get("message") or "no reason given")


def all_tries(directory: Path) -> Mapping[str, Sequence[Result]]:
    """How each test of all stages ended, first try first. Empty: no test ran."""
    found: dict[str, list[Result]] = {}
    for again in (False, True):
        for report in sorted(directory.glob("*.xml")):
            if report.name.endswith(AGAIN) is again:
                for name, result in tries_of(report):
                    found.setdefault(name, []).append(result)
    return found


def flaky(tries: Mapping[str, Sequence[Result]]) -> list[str]:
    """The tests that passed only in the second try."""
    return [
        name
        for name, results in tries.items()
        if results[-1].kind == "passed" and any(each.kind == "failed" for each in results)
    ]


def judge(tries: Mapping[str, Sequence[Result]]) -> Iterator[str]:
    """What is wrong with the run, one sentence each; nothing when it passes."""
    if not tries:
        yield "no test ran at all"
    for name, results in tries.items():
        if results[-1].kind == "skipped" and name.partition("[")[0] not in ALLOWED:
            yield f"not run: {name}: {results[-1].reason}"
        if results[-1].kind == "failed":
            yield f"failed: {name}"
    if len(flaky(tries)) > MOST_FLAKY:
        yield f"{len(flaky(tries))} tests passed only in the second try, {MOST_FLAKY} may"


def count(tries: Mapping[str, Sequence[Result]]) -> str:
    """The line that closes the run."""
    kinds = [results[-1].kind for results in tries.values()]
    return ", ".join(f"{kinds.count(kind)} {kind}" for kind in ("passed", "failed", "skipped"))


def main(arguments: list[str]) -> int:
    """The exit code: 0 when the run passes, 1 otherwise."""
    *options, directory = arguments
    tries = all_tries(Path(directory))
    if options == ["--count"]:
        print(count(tries))
        return 0
    for name in flaky(tries):
        print(f"passed only in the second try: {name}")
    problems = list(judge(tries))
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
