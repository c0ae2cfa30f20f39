"""Finds the message for which an expression of the user fails, when it has ended a batch.

Theory. Spark's error has the value that an expression failed for, but not the message. So the batch's partitions are
read again, and the one with the same error is halved until one message is left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from . import admission, ownership
from .spark_session import cause_line, cause_of
from .transforms.messages import raw_records
from .transforms.rows import rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from .connection import Connection
    from .files import Files

__all__ = ["Part", "failing_message"]


class Part(NamedTuple):
    """Offsets of a partition; `end` is behind the last one."""

    topic: str
    partition: int
    first: int
    end: int

    def __str__(self) -> str:
        return f"{self.topic} partition {self.partition} offset {self.first}"


def failing_message(
    checkpoint: Files,
    connection: Connection,
    topic: str,
    computed: Callable[[DataFrame], DataFrame],
    error: Exception,
) -> Part | None:
    """Returns the message of the last planned batch for which `computed` fails as in `error`; None if there is none."""
    from pyspark import errors

    kinds = (
        errors.ArithmeticException,
        errors.ArrayIndexOutOfBoundsException,
        errors.DateTimeException,
        errors.NumberFormatException,
        errors.SparkRuntimeException,
    )
    if not isinstance(cause_of(error), kinds):
        return None
    said = cause_line(error)

    def fails(part: Part) -> bool:
        try:
            _read(checkpoint, connection, topic, part, computed)
        except Exception as found:
            # Another error, such as a broker that doesn't answer, is none of this message.
            return cause_line(found) == said
        return False

    return next((_first(part, fails) for part in _parts(checkpoint) if fails(part)), None)


def _read(
    checkpoint: Files,
    connection: Connection,
    topic: str,
    part: Part,
    computed: Callable[[DataFrame], DataFrame],
) -> None:
    records = raw_records(
        checkpoint.spark,
        topic,
        connection,
        starting={part.topic: {part.partition: part.first}},
        ending={part.topic: {part.partition: part.end}},
        lost="skip",
        only=True,
    )
    computed(rows(records)).write.format("noop").mode("overwrite").save()


def _parts(checkpoint: Files) -> Iterator[Part]:
    begun = ownership.committed_offsets(checkpoint)
    planned = admission.batch_of(checkpoint, ownership.last_planned(checkpoint))
    for topic, ends in (planned.ends if planned is not None else {}).items():
        for number, end in ends.items():
            first = begun.get(topic, {}).get(number, 0)
            if first < end:
                yield Part(topic, number, first, end)


def _first(part: Part, fails: Callable[[Part], bool]) -> Part:
    while part.end - part.first > 1:
        middle = (part.first + part.end) // 2
        before = part._replace(end=middle)
        part = before if fails(before) else part._replace(first=middle)
    return part
