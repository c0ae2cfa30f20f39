"""Logs callbacks that raise: with a traceback the first time, and in one line when a message fails so again.

Theory. A message that waits for its redelivery carries its last error in the retry topic. So any process can tell
whether it is the first time, without a memory of its own.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from kafka_pubsub.model import Message
from kafka_pubsub.subscribe.formats.record import ERROR_BYTES, RetryRecord

__all__ = ["log_given_up", "log_raised", "rejection", "words_of"]

log = logging.getLogger("kafka_pubsub.subscriber")


def words_of(error: BaseException | None) -> str:
    """Returns the error text of a failed callback, "Class: text", within a limit; empty: no error is known."""
    if error is None:
        return ""
    try:
        text = str(error)
    except Exception:  # a user's exception whose `str` raises
        text = ""
    return f"{type(error).__name__}: {text}"[:ERROR_BYTES]


def rejection(reason: str, error: BaseException | None) -> str:
    """Returns the error text of a message that its callback gave up, while it handled `error` if there is one."""
    return f"{type(error).__name__ if error is not None else 'Rejected'}: {reason}"[:ERROR_BYTES]


def log_given_up(message: Message, error: BaseException) -> None:
    """Logs that a message isn't a record, in one line."""
    log.warning("%r is given up, and is a dead letter, or parked where there are none: %s", message, error)


def log_raised(messages: Sequence[Message], error: BaseException) -> None:
    """Logs that the callback raised; the traceback only if a message hasn't failed with this class of error before."""
    shown = f"{messages[0]!r}" if len(messages) == 1 else f"{messages[0]!r} and {len(messages) - 1} more"
    if all(_failed_so_before(message, error) for message in messages):
        again = " ".join(words_of(error).split())
        log.error("the callback of %s raised again, which is a nack: %s", shown, again)
    else:
        log.error("the callback of %s raised, which is a nack", shown, exc_info=error)


def _failed_so_before(message: Message, error: BaseException) -> bool:
    record = message._record
    if not isinstance(record, RetryRecord):
        return False
    before = record.info.error
    kind, separator, _ = before.partition(": ")
    return bool(separator) and kind == type(error).__name__
