"""Archives that wait at a step of a batch each, in a driver: `python -m tests.spark.drivers.stopping ...`.

The arguments are those of many.py. The name of an archive's directory is the step, and beside it a file says that the
archive is there; the program goes on when the file `hold` is gone.

planned     Spark has noted the batch's input, and nothing is written
written     files are being written, and Delta's log doesn't list them yet
committed   Delta's log lists them, and Spark hasn't noted that the batch is done
finished    Spark has noted the end; the test sees that by itself, and this program changes nothing
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from spark.base.tables import Table
from tests.spark.drivers.many import main

STEPS = ("planned", "written", "committed", "finished")
#: The batch that waits.
BATCH = 1


def wait(flag: Path, hold: Path) -> None:
    flag.touch()
    while hold.exists():
        time.sleep(0.05)


def waiting() -> None:
    """Has each archive wait at its step."""
    append = Table.append

    def appended(self: Table, batch: Any, query: str, number: int, *, note: str = "") -> None:
        where = Path(self.address.removeprefix("file:"))
        step, flag, hold = where.name, where.with_name(f"{where.name}-reached"), where.with_name("hold")
        mine = number == BATCH
        if mine and step == "planned":
            wait(flag, hold)
        if mine and step == "written":
            from tests.spark.session.test_archive_tables import blocking

            # A task that runs in Java waits for this file to be gone, and says so in a file beside it.
            batch = blocking(batch, where.with_name("written-hold"))
        append(self, batch, query, number, note=note)
        if mine and step == "committed":
            wait(flag, hold)

    Table.append = appended  # type: ignore[method-assign]


if __name__ == "__main__":
    waiting()
    main(*sys.argv[1:])
