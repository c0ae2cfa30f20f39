"""Judges a whole CI run by the reports of its stages, and tells how it went.

Usage: verdict.py DIRECTORY
       verdict.py --summary DIRECTORY

DIRECTORY holds one JUnit file for each stage, `NAME.xml`, and one for the tests that were run again, `NAME.again.xml`;
where an error inside of pytest ended a first run of the stage, that run's is `NAME.broken.xml`.

Rules
1. A test that did not run fails the run: skipping for want of a part (Java, a broker, a package) is right on a
   contributor's machine and a hole here. ALLOWED names the exceptions, each with its reason in a comment.
2. A test that failed in both tries fails the run. One that passed in the second never does by itself: it is listed
   with its first failure, to be mended in the next change. More than MOST_FLAKY of them fail the run. Where a stage
   ran twice, a test may have three tries, and fails the run if it failed in two of them.
3. `--summary` judges nothing. It prints the slowest tests, the figures that tests measured, the tests that passed only
   in the second try, those that failed, those that were still running when a stage had no time left, and as its last
   line the counts of all stages, where the second try counts.
   An error inside of pytest counts as a test of its stage, which passes if the stage could run again.
"""

from __future__ import annotations

import re
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

# Test ids as `module::name`, without parameters.
ALLOWED: frozenset[str] = frozenset()

#: How many tests may pass only in the second try. Brokers are killed and processes race on machines that others use.
MOST_FLAKY = 5
#: How many of the slowest tests are shown.
SLOWEST = 30

BROKEN, AGAIN = ".broken.xml", ".again.xml"
#: The line of a failure's text that says where it happened.
PLACE = re.compile(r"^(\S+:\d+): ?\w*$", re.MULTILINE)
#: Characters of a message that are shown.
SHORT = 200
#: The message of an error inside of pytest; the text below says which one.
INTERNAL = "internal error"
#: The name that pytest gives such an error in a report.
PYTEST = "pytest::internal"


class Result(NamedTuple):
    """How a test ended."""

    kind: Literal["passed", "failed", "skipped"]
    #: Why it failed or was skipped: a line.
    reason: str = ""
    seconds: float = 0.0
    figures: Sequence[str] = ()


def tries_of(report: Path) -> Iterator[tuple[str, Result]]:
    """Each test of a report by id, in order; one that took its process down is reported again when it ran anew."""
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        result = _result(case)
        name = f"{case.get('classname', '')}::{case.get('name', '')}"
        # A test that was under way when pytest broke off has no name, and no result.
        if name != "::" or result.kind != "passed":
            yield _broke_off(report) if name == PYTEST else name, result


def _broke_off(report: Path) -> str:
    """The id of an error inside of pytest: each stage may have one."""
    return f"{PYTEST} in {report.name.partition('.')[0]}"


def _result(case: ElementTree.Element) -> Result:
    seconds = float(case.get("time") or 0)
    for kind in ("failure", "error"):
        if (found := case.find(kind)) is not None:
            return Result("failed", _failure(found), seconds)
    if (skipped := case.find("skipped")) is not None:
        return Result("skipped", skipped.text or skipped.get("message") or "no reason given", seconds)
    properties = case.iterfind("properties/property[@name='figure']")
    return Result("passed", seconds=seconds, figures=[each.get("value", "") for each in properties])


def _failure(found: ElementTree.Element) -> str:
    """The place and the first line of the error; of an error inside of pytest its end."""
    lines = (found.get("message") or "").splitlines() or ["no message"]
    if lines == [INTERNAL]:
        return f"{INTERNAL}: {' '.join((found.text or '').split())[-3 * SHORT :]}"
    places = PLACE.findall(found.text or "")
    return f"{places[-1]}: {lines[0][:SHORT]}" if places else lines[0][:SHORT]


def all_tries(directory: Path) -> Mapping[str, Sequence[Result]]:
    """How each test of all stages ended, first try first. Empty: no test ran."""
    found: dict[str, list[Result]] = {}
    broken = sorted(directory.glob(f"*{BROKEN}"))
    again = sorted(directory.glob(f"*{AGAIN}"))
    for report in [*broken, *sorted({*directory.glob("*.xml")} - {*broken, *again}), *again]:
        for name, result in tries_of(report):
            found.setdefault(name, []).append(result)
        if report in broken:
            found.setdefault(_broke_off(report), []).append(Result("passed"))
    return found


def _has_failed(results: Sequence[Result]) -> bool:
    failures = [each.kind for each in results].count("failed")
    return results[-1].kind == "failed" or failures > 1


def flaky(tries: Mapping[str, Sequence[Result]]) -> dict[str, str]:
    """The tests that passed only in the second try, and the first failure of each."""
    return {
        name: next(each.reason for each in results if each.kind == "failed")
        for name, results in tries.items()
        if not _has_failed(results) and any(each.kind == "failed" for each in results)
    }


def judge(tries: Mapping[str, Sequence[Result]]) -> Iterator[str]:
    """What is wrong with the run, one sentence each; nothing when it passes."""
    if not tries:
        yield "no test ran at all"
    for name, results in tries.items():
        if results[-1].kind == "skipped" and name.partition("[")[0] not in ALLOWED:
            yield f"not run: {name}: {results[-1].reason}"
        if _has_failed(results):
            yield f"failed: {name}: {[each.reason for each in results if each.kind == 'failed'][-1]}"
    if len(flaky(tries)) > MOST_FLAKY:
        yield f"{len(flaky(tries))} tests passed only in the second try, {MOST_FLAKY} may"


def summary(tries: Mapping[str, Sequence[Result]]) -> Iterator[str]:
    """The lines that close the run."""
    seconds = {name: max(each.seconds for each in results) for name, results in tries.items()}
    slowest = sorted(seconds, key=lambda name: -seconds[name])[:SLOWEST]
    if slowest:
        yield f"the {len(slowest)} slowest tests, in seconds with their fixtures:"
    for name in slowest:
        yield f"{seconds[name]:7.1f}  {name}"
    for name, results in tries.items():
        yield from (f"measured: {name}: {figure}" for figure in results[-1].figures)
    for name, failure in flaky(tries).items():
        yield f"passed only in the second try: {name}"
        yield f"  {failure}"
    for name, results in tries.items():
        if _has_failed(results):
            yield f"failed: {name}"
            yield from (f"  {each.reason}" for each in results if each.kind == "failed")
    kinds = ["failed" if _has_failed(results) else results[-1].kind for results in tries.values()]
    yield ", ".join(f"{kinds.count(kind)} {kind}" for kind in ("passed", "failed", "skipped"))


def unfinished(directory: Path) -> Iterator[str]:
    """The tests that were running when their stage was interrupted (tests/unfinished.py)."""
    for report in sorted(directory.glob("*.xml")):
        for found in ElementTree.parse(report).getroot().iterfind(".//property[@name='unfinished']"):
            yield found.get("value", "")


def main(arguments: list[str]) -> int:
    """The exit code: 0 when the run passes, 1 otherwise."""
    *options, directory = arguments
    tries = all_tries(Path(directory))
    if options == ["--summary"]:
        *lines, counts = summary(tries)
        cut_short = [f"unfinished: {each}" for each in unfinished(Path(directory))]
        print(*lines, *cut_short, counts, sep="\n")
        return 0
    problems = list(judge(tries))
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
