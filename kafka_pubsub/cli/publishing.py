"""Publishing many messages: how many were stored, which failed first, and a progress bar.

Rule: the broker's answers come in another thread, which only counts them, and prints them under `--json`. The thread
that reads the lines looks at the first failure before each line.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, cast

from kafka_pubsub.cli.output import Output, stderr_console, to_json
from kafka_pubsub.errors import DeadlineExceeded, PubSubError, SchemaError

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

    from kafka_pubsub.options import PublishOptions
    from kafka_pubsub.topic import Topic

__all__ = ["Choices", "Progress", "Publishing"]


# Unanswered messages at a time: enough for full speed, few enough to wait for after Ctrl-C.
WINDOW = 10_000
# Seconds without any answer after which the command stops waiting.
SILENCE_S = 30.0
POLL_S = 0.005


class Choices(NamedTuple):
    """What `publish` is told about every message beside its body, key and attributes."""

    delay: float | None = None
    deliver_at: datetime | None = None
    priority: int | None = None
    durable: bool | None = None


class Publishing:
    """Sends messages to one topic and counts the stored ones."""

    def __init__(
        self,
        topic: Topic,
        attributes: Mapping[str, str],
        answers: Output | None,
        choices: Choices | None = None,
        *,
        records: bool = False,
    ) -> None:
        from kafka_pubsub.config import PublishFlow

        # The publisher itself waits for a broker for ever; this asks once, and fails if no broker or topic is there.
        _ = topic.options
        topic.configure(flow=PublishFlow(max_messages=WINDOW, on_limit="block"))
        self.stored = 0
        self.last_id = ""
        self._topic = topic
        self._attributes = attributes or None
        self._answers = answers
        self._choices = choices or Choices()
        self._records = records
        self._sent = 0
        #: Written by the one thread that runs the futures' callbacks, as is `stored`.
        self._answered = 0
        self._failure: BaseException | None = None

    def send(self, data: bytes, key: str | None, line: int) -> None:
        """Publishes one message; raises the error of an earlier one."""
        if self._failure is not None:
            raise self._failure
        settings: PublishOptions = {"ordering_key": key, "attributes": self._attributes}
        settings.update(cast("PublishOptions", self._choices._asdict()))
        if self._records:
            future = self._topic.publish_record(self._read_record(data, line), **settings)
        else:
            future = self._topic.publish(data, **settings)
        self._sent += 1
        future.add_done_callback(partial(self._take_answer, key, line))

    def _read_record(self, data: bytes, line: int) -> object:
        try:
            return self._topic._writer().read_json(data)
        except SchemaError as error:
            raise SchemaError(f"message {line} isn't a record of the topic: {error.message}") from error

    def fail(self, error: BaseException) -> None:
        """Keeps the first failure, which ends the command."""
        self._failure = self._failure or error

    def finish(self) -> None:
        """Waits for the answers that are missing, as long as some come."""
        seen, moved = -1, time.monotonic()
        while self._answered < self._sent:
            if self._answered != seen:
                seen, moved = self._answered, time.monotonic()
            elif time.monotonic() - moved > SILENCE_S:
                text = f"the broker hasn't answered for {SILENCE_S:.0f} s"
                self.fail(DeadlineExceeded(f"{text}; whether the last messages are stored is unknown"))
                return
            time.sleep(POLL_S)

    def raise_failure(self) -> None:
        """Raises the first failure, if there was one, with the number of messages that are stored."""
        error = self._failure
        if error is None:
            return
        if isinstance(error, PubSubError) and (self._sent > 1 or self.stored):
            told = "1 message was" if self.stored == 1 else f"{self.stored:,} messages were"
            text = f"{error.message} ({told} published)"
            raise type(error)(text, code=error.code, calls=error.calls)
        raise error

    def _take_answer(self, key: str | None, line: int, future: Future[str]) -> None:
        try:
            message_id = future.result()
            self.stored += 1
            self.last_id = message_id
            if self._answers is not None:
                self._answers.line(to_json({"message_id": message_id, "ordering_key": key, "line": line}))
        except BaseException as error:
            # Raised again by the thread that reads the lines.
            self.fail(error)
        self._answered += 1


class Progress:
    """A bar for a file, a counter for a stream; nothing when stderr isn't a terminal."""

    def __init__(self, bar: RichProgress | None = None, task: TaskID | None = None) -> None:
        self._bar = bar
        self._task = task

    def advance(self, read: int, stored: int) -> None:
        """Adds to the bytes that were read and to the messages that are stored."""
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, advance=read, stored=f"{stored:,}")

    @classmethod
    @contextmanager
    def shown(cls, size: int | None, *, quiet: bool) -> Iterator[Progress]:
        """Draws the progress on stderr if that is a terminal."""
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
