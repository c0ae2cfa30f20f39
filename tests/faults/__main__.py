"""A fault round from the command line: `python -m tests.faults kill-consumer --seed 7 --seconds 60`.

Starts a Kafka of its own, prints what was seen as a line of JSON, and ends with 0 (all is well) or 1 (it isn't; the
histories are kept).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from kafka_pubsub.local import LocalKafka
from tests.faults.arena import Arena, clustered
from tests.faults.faults import FAULTS
from tests.faults.plan import RoundPlan
from tests.faults.round import run_round


def main(arguments: list[str] | None = None) -> int:
    """Runs a single round; the exit code."""
    options = vars(_parser().parse_args(arguments))
    folder = options.pop("keep")
    plan = RoundPlan(**options)
    # Brokers of a round live for minutes: what the optimizing compiler costs them is a third of all their work.
    os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")
    scratch = Path(tempfile.mkdtemp(prefix="faults-")) if folder is None else folder
    scratch.mkdir(parents=True, exist_ok=True)
    with _arena(plan.fault, None if folder is None else scratch / "brokers") as arena:
        outcome = run_round(plan, arena, scratch)
    print(json.dumps(asdict(outcome)))
    for problem in outcome.problems:
        print(problem, file=sys.stderr)
    if outcome.problems:
        print(f"The histories are in {scratch}", file=sys.stderr)
        return 1
    if folder is None:
        shutil.rmtree(scratch)
    return 0


@contextmanager
def _arena(fault: str, data_dir: Path | None) -> Iterator[Arena]:
    if FAULTS[fault].cluster:
        with clustered(data_dir=data_dir) as arena:
            yield arena
    else:
        with LocalKafka() as kafka:
            yield Arena(kafka.bootstrap)


def _parser() -> argparse.ArgumentParser:
    known = RoundPlan("")
    listed = "\n".join(f"  {name:24}{fault.summary}" for name, fault in FAULTS.items())
    parser = argparse.ArgumentParser(
        "python -m tests.faults",
        description=f"Breaks something on purpose while messages flow.\n\n{listed}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("fault", choices=sorted(FAULTS), metavar="FAULT")
    parser.add_argument("--seed", type=int, default=known.seed)
    for name in ("seconds", "rate", "nack_percent", "settle", "calm"):
        parser.add_argument(f"--{name.replace('_', '-')}", type=float, default=getattr(known, name))
    for name in ("publishers", "consumers", "partitions", "keys", "poison_every"):
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=getattr(known, name))
    parser.add_argument(
        "--keep",
        type=Path,
        metavar="DIR",
        help="an empty directory for the histories, and the logs of a cluster",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
