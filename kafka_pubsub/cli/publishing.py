"""Publishing many messages: what was stored, what failed first, and a progress bar.

Rule: answers of the broker come in another thread; they only count, and print under `--json`. The thread that
reads the lines looks at the first failure before each line.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kafka_pubsub.cli.output import Output, stderr_console, to_json
from kafka_pubsub.errors import DeadlineExceeded, PubSubError

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

    from kafka_pubsub.client.topic import Topic

__all__ = ["Progress", "Publishing"]


class Publishing:
    """Sends messages to one topic and keeps account of them."""

    def __init__(self, topic: Topic, attributes: Mapping[str, str], answers: Output | None) -> None:
        self.stored = 0
        self.last_id = ""
        self._topic = topic
        self._attributes = attributes or None
        self._answers = answers
        self._sent = 0
        self._failure: BaseException | None = None
        self._changed = threading.Condition()

    def send(self, data: bytes, key: str | None, line: int) -> None:
        """Publishes one message; raises what an earlier one died of."""
        if self._failure is not None:
            self.raise_failure()
        future = self._topic.publish(data, ordering_key=key, attributes=self._attributes)
        self._sent += 1
        future.add_done_callback(lambda done: self._answered(done, key, line))

    def finish(self, timeout: float) -> None:
        """Waits for the answers that are missing."""
        with self._changed:
            if not self._changed.wait_for(
                lambda: self.stored >= self._sent or self._failure is not None, timeout
            ):
                self._failure = DeadlineExceeded(f"the broker didn't answer within {timeout:.0f} s")

    def raise_failure(self) -> None:
        """Raises the first failure, if there was one, with the number of messages that are stored."""
        error = self._failure
        if error is None:
            return
        if isinstance(error, PubSubError) and self._sent > 1:
            error.message = f"{error.message} ({self.stored:,} messages were published before)"
        raise error

    def _answered(self, future: Future[str], key: str | None, line: int) -> None:
        try:
            message_id = future.result()
            if self._answers is not None:
                self._answers.line(to_json({"message_id": message_id, "ordering_key": key, "line": line}))
        except BaseException as error:  # it is raised again by the thread that reads
            with self._changed:
                self._failure = self._failure or error
                self._changed.notify_all()
            return
        with self._changed:
            self.last_id = message_id
            self.stored += 1
            self._changed.notify_all()


class Progress:
    """A bar for a file, a counter for a stream; nothing when nobody looks."""

    def __init__(self, bar: RichProgress | None = None, task: TaskID | None = None) -> None:
        self._bar = bar
        self._task = task

    def advance(self, read: int, stored: int) -> None:
        """So many more bytes were read, and so many messages are stored."""
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, advance=read, stored=f"{stored:,}")

    @classmethod
    @contextmanager
    def shown(cls, size: int | None, *, quiet: bool) -> Iterator[Progress]:
        """Draws on stderr if that is a terminal."""
        if quiet or not stderr_console().is_terminal:
            yield cls()
            return
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            TextColumn,
            TimeElapsedColumn,
            TransferSpeedColumn,
        )
        from rich.progress import Progress as RichProgress

        columns = (
            TextColumn("{task.fields[stored]} published"),
            BarColumn(bar_width=None),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeElapsedColumn(),
        )
        with RichProgress(*columns, console=stderr_console(), transient=True) as bar:
            yield cls(bar, bar.add_task("publish", total=size, stored="0"))
