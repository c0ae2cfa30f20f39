"""Shows a person the warnings of the log that explain why a command takes long: no service runs, no broker answers."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from kafka_pubsub.cli.output import Output

__all__ = ["OUTAGES", "PUBLISHING", "noted"]

#: The loggers that warn of outages, and of messages that wait.
OUTAGES, PUBLISHING = "kafka_pubsub.kafka", "kafka_pubsub.publish"


class _Notes(logging.Handler):
    def __init__(self, output: Output) -> None:
        super().__init__(logging.WARNING)
        self._output = output

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        self._output.note(f"{text[:1].upper()}{text[1:]}.")


@contextmanager
def noted(output: Output, *loggers: str) -> Iterator[None]:
    """Writes the warnings of these loggers as notes, as long as the block runs."""
    handler, taken = _Notes(output), [logging.getLogger(name) for name in loggers]
    for logger in taken:
        logger.addHandler(handler)
    try:
        yield
    finally:
        for logger in taken:
            logger.removeHandler(handler)
