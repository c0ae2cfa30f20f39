"""A driver of `archive` that is stopped at one step of a batch: `python -m tests.spark.drivers.stopping STEP FLAG ...`.

It touches FLAG when it is there, and sends SIGSTOP to its whole process group, Java included; the test sends
SIGCONT. The other arguments are those of the command line.

planned     Spark has noted what the batch reads, and nothing is written
written     files are being written, and Delta's log doesn't list them yet
committed   Delta's log lists them, and Spark hasn't noted that the batch is done
finished    Spark has noted it; the test sees that by itself, and this program changes nothing
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from kafka_pubsub.cli.main import main
from spark.tables import Table

STEPS = ("planned", "written", "committed", "finished")
#: The batch that is stopped.
BATCH = 1


def stop(flag: Path) -> None:
    flag.touch()
    os.killpg(0, signal.SIGSTOP)


def stopped_at(step: str, flag: Path) -> None:
    """Has the next batch of that number stop there."""
    append = Table.append

    def stopping(self: Table, batch: Any, query: str, number: int) -> None:
        mine = number == BATCH
        if mine and step == "planned":
            stop(flag)
        if mine and step == "written":
            from tests.spark.session.test_archive_tables import blocking

            # The test stops the group: a task that runs in Java can't do that itself.
            batch = blocking(batch, flag.with_name("hold"))
        append(self, batch, query, number)
        if mine and step == "committed":
            stop(flag)

    Table.append = stopping  # type: ignore[method-assign]


if __name__ == "__main__":
    stopped_at(sys.argv[1], Path(sys.argv[2]))
    sys.argv[1:] = sys.argv[3:]
    main()
