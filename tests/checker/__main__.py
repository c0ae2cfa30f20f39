"""`python -m tests.checker FILES...`: exit code 0 all promises kept, 1 violated, 2 can't be checked."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.checker.judgement import judge
from tests.checker.reading import NotAHistory
from tests.checker.settings import Settings

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    usual = Settings()
    parser = argparse.ArgumentParser(prog="python -m tests.checker", description=__doc__)
    parser.add_argument("files", nargs="+", type=Path, help="histories, or directories of them")
    parser.add_argument(
        "--skew", type=float, default=usual.skew, help="seconds between wall clocks of two hosts"
    )
    parser.add_argument("--grace", type=float, default=usual.grace, help="seconds that a thread may need")
    parser.add_argument(
        "--max-lag", type=float, default=usual.max_lag, help="seconds an ack may stay uncommitted"
    )
    parser.add_argument("--late-loss", type=float, default=usual.late_loss, help="seconds to notice a loss")
    parser.add_argument("--unfinished", action="store_true", help="the run ended before everything was acked")
    parser.add_argument("--limit", type=int, default=20, help="violations of each kind that are shown")
    given = parser.parse_args(arguments)
    files = [
        file for path in given.files for file in (sorted(path.glob("*.jsonl")) if path.is_dir() else [path])
    ]
    settings = Settings(given.skew, given.grace, given.max_lag, given.late_loss, drained=not given.unfinished)
    try:
        judgement = judge(files, settings, limit=given.limit)
    except (NotAHistory, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    print(judgement.text)
    return 0 if judgement.ok else 1


if __name__ == "__main__":
    sys.exit(main())
