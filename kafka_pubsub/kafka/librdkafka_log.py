"""librdkafka's log, handed to `logging` under the name `kafka_pubsub.librdkafka`.

Rules
1. A line that says the same as one a moment ago (a broker that is down is reported 20 times a second) is logged
   once in `REPEAT_AFTER` seconds with a count; the repeats go to DEBUG.
2. A connection that breaks is a warning, not an error: librdkafka connects again by itself, and a call that fails
   because of it reports that to its caller.
3. A refused transaction or a fenced producer is a warning too (librdkafka says CRITICAL): mostly this client has
   fenced it, and the transaction's outcome reports what it means.
4. A coordinator that is just being found or loaded, as on any fresh broker, is asked again: that is information.
5. librdkafka complains when a setting belongs to another kind of client, or is experimental. The user's
   settings go to all kinds on purpose, and the one experimental setting in use was tried, so this goes to DEBUG.
"""

from __future__ import annotations

import logging
import re
import threading
import time

__all__ = ["LOGGER_NAME", "LibrdkafkaLog"]

LOGGER_NAME = "kafka_pubsub.librdkafka"

#: Seconds between two lines of the same meaning: long enough for a console, short enough for an alarm.
REPEAT_AFTER = 30.0

#: How many different lines are remembered; a cluster in trouble has a few for each broker.
_REMEMBERED = 256

_NUMBERS = re.compile(r"\d+")
_ON_PURPOSE = re.compile(
    r"is a (producer|consumer) property and will be ignored|enable\.gapless\.guarantee is experimental"
)
#: The call, the delivery or the transaction that suffers from these reports it itself.
_TOLD_BY_A_CALL = frozenset({"FAIL", "ERROR", "FATAL", "TXNERR", "ADDPARTS", "ADDOFFSETS"})


class LibrdkafkaLog:
    """Takes the place of a logger in librdkafka's Python client, which calls `log` only."""

    def __init__(self, logger: logging.Logger | None = None) -> None:
        self._logger = logger or logging.getLogger(LOGGER_NAME)
        self._lock = threading.Lock()
        # Line without its numbers -> when it was last shown, and how often it was suppressed since.
        # Empty: nothing logged yet.
        self._shown: dict[str, tuple[float, int]] = {}

    def log(self, level: int, pattern: str, facility: str, client: str, text: str) -> None:
        """Logs one line of librdkafka."""
        level = self._level(level, facility, text)
        if level <= logging.DEBUG:
            self._logger.log(level, pattern, facility, client, text)
            return
        swallowed = self._admit(f"{facility} {_NUMBERS.sub('#', text)}", time.monotonic())
        if swallowed is None:
            self._logger.debug(pattern, facility, client, text)
            return
        if swallowed:
            self._logger.log(level, "%d lines like the next one were left out", swallowed)
        self._logger.log(level, pattern, facility, client, text)

    @staticmethod
    def _level(level: int, facility: str, text: str) -> int:
        if facility == "CONFWARN" and _ON_PURPOSE.search(text):
            return logging.DEBUG
        if facility == "GETPID" and text.endswith("retrying"):
            return logging.INFO
        if facility in _TOLD_BY_A_CALL:
            return min(level, logging.WARNING)
        return level

    def _admit(self, line: str, now: float) -> int | None:
        """Returns None for a repeat; else how many repeats were suppressed before this line."""
        with self._lock:
            last, swallowed = self._shown.get(line, (None, 0))
            if last is not None and now - last < REPEAT_AFTER:
                self._shown[line] = (last, swallowed + 1)
                return None
            if len(self._shown) >= _REMEMBERED:
                self._shown.clear()
            self._shown[line] = (now, 0)
            return swallowed
