"""Progress of long work, on stderr: a bar on a terminal, else a line every few seconds; nothing with `--json`."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

from kafka_pubsub.cli.output import Output, stderr_console

__all__ = ["Tell", "progress"]

#: A function that is called with a description of the work, how much is done, and of how much.
Tell = Callable[[str, int, int], None]

#: Seconds between two lines where no bar can be drawn.
LINES_S = 5.0
#: Seconds before the first line: quick work needs none.
QUICK_S = 2.0


@contextlib.contextmanager
def progress(output: Output) -> Iterator[Tell]:
    """Yields the function to call with the progress of the work inside."""
    if output.as_json:
        yield lambda what, done, total: None
    elif sys.stderr.isatty():
        with _bar() as tell:
            yield tell
    else:
        yield _Lines(output)


@contextlib.contextmanager
def _bar() -> Iterator[Tell]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(elapsed_when_finished=True),
    )
    with Progress(*columns, console=stderr_console(), transient=True) as bar:
        tasks: dict[str, object] = {}

        def tell(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(what, total=total)
            bar.update(tasks[what], completed=done, total=total)  # type: ignore[arg-type]  # rich's TaskID

        yield tell


class _Lines:
    """Progress as a line every few seconds."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._next = time.monotonic() + QUICK_S

    def __call__(self, what: str, done: int, total: int) -> None:
        if (now := time.monotonic()) >= self._next:
            self._next = now + LINES_S
            self._output.note(f"{what}: {done:,} of {total:,}")
