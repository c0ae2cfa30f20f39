"""Fails when a test did not run: a test that CI skips protects nobody.

Usage: skips.py JUNIT_XML

Skipping for want of a part (Java, a broker, a package) is right on a contributor's machine and a hole here,
so every skip and every expected failure counts, unless ALLOWED names the test and a comment the reason.
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path

# Test ids as `module::name`, without parameters.
ALLOWED: frozenset[str] = frozenset()


def not_run(report: Path) -> Iterator[tuple[str, str]]:
    """Pairs of a test's id and the reason it gave, of all that did not run."""
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        for skipped in case.iter("skipped"):
            name = f"{case.get('classname', '')}::{case.get('name', '')}"
            yield name, skipped.text or skipped.get("message") or "no reason given"


def main(arguments: list[str]) -> int:
    """The exit code: 0 when every test ran, 1 otherwise."""
    report = Path(*arguments)
    if ElementTree.parse(report).getroot().find(".//testcase") is None:
        print("no test ran at all")
        return 1
    missing = [(name, why) for name, why in not_run(report) if name.partition("[")[0] not in ALLOWED]
    for name, why in missing:
        print(f"not run: {name}: {why}")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
