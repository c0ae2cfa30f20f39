"""An error of Spark becomes one line that a person can read, also while Spark's Java process ends."""

from __future__ import annotations

from typing import Any, NoReturn

import pytest

from kafka_pubsub import FailedPrecondition
from kafka_pubsub.errors import InvalidArgument
from spark.run.job import Context, Job, execute


class OfJava(Exception):
    """As py4j's: it asks the Java process for its cause, and that may have ended."""

    __module__ = "py4j.protocol"

    @property
    def java_exception(self) -> NoReturn:
        raise ConnectionRefusedError(111, "Connection refused")


class Own(Exception):
    __module__ = "pyspark.errors"


def run(error: Exception) -> None:
    def fail(_: Context, **options: Any) -> NoReturn:
        raise error

    connection: Any = None
    context = Context("replay", connection, lambda text: None)
    execute(Job("replay", "", (), (), fail), context, {})


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (OfJava("x"), r"^replay: Spark's Java process has ended; .*spark\.driver\.memory"),
        (ConnectionResetError(), r"^replay: Spark's Java process has ended"),
        (Own("GC overhead, java.lang.OutOfMemoryError"), r"^replay: Spark's memory ran out \("),
        (Own("no such column"), r"^replay failed in Spark: no such column \(KAFKA_PUBSUB_SPARK_LOG"),
    ],
)
def test_an_error_of_spark_is_one_line(error: Exception, text: str) -> None:
    with pytest.raises(FailedPrecondition, match=text) as caught:
        run(error)
    assert caught.value.__cause__ is error


@pytest.mark.parametrize("error", [InvalidArgument("--topic"), KeyError("a mistake of ours")])
def test_other_errors_stay_as_they_are(error: Exception) -> None:
    with pytest.raises(type(error)):
        run(error)
