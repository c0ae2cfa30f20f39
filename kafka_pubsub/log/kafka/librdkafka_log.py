"""librdkafka's log, handed to `logging` under the name `kafka_pubsub.librdkafka`.

Rules
1. A line that says the same as one before (a broker that is down is reported 20 times a second) is logged once a
   minute, with a count; the repeats go to DEBUG.
2. A connection that breaks is information, because librdkafka connects again by itself; it is a warning once it has
   lasted. While no broker answers at all, these lines go to DEBUG: one warning for all says so (`outages.py`).
3. A member whose session has expired, and a request that timed out, are information too: what they stopped is
   reported. They may be the first signs of an outage.
4. A refused transaction or a fenced producer is a warning (librdkafka says CRITICAL): mostly this client has
   fenced it, and the transaction's outcome reports what it means. During an outage it is information.
5. A coordinator that is just being found or loaded, as on any fresh broker, is asked again: that is information.
6. librdkafka complains when a setting belongs to another kind of client, or is experimental. The user's
   settings go to all kinds on purpose, and the one experimental setting in use was tried, so this goes to DEBUG.
7. A client with `debug=feature` tells which versions of each request a broker takes; so it is known how old that is.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable
from typing import Final

from kafka_pubsub.log.kafka.outages import Outage
from kafka_pubsub.log.lasting_troubles import LastingTroubles, Loudness

__all__ = ["LOGGER_NAME", "LibrdkafkaLog"]

LOGGER_NAME = "kafka_pubsub.librdkafka"

#: Seconds between two lines of the same meaning: long enough for a console, short enough for an alarm.
REPEAT_AFTER: Final = 60.0

#: Seconds after which a connection that is always broken is worth a warning.
_LASTING: Final = 3.0

_NUMBERS = re.compile(r"\d+")
_ON_PURPOSE = re.compile(
    r"is a (producer|consumer) property and will be ignored|enable\.gapless\.guarantee is experimental"
)
#: The least version of Fetch that a broker takes: 4.0 was the first to refuse those below this one (KIP-896).
_FETCH = re.compile(r"ApiKey Fetch \(1\) Versions (\d+)\.\.")
_OLDEST_FETCH: Final = 4
#: Lines about a connection.
_CONNECTION = frozenset({"FAIL", "ERROR"})
#: Lines about an answer that didn't come, and what librdkafka doesn't know just after an outage.
_FIRST_SIGNS = frozenset({"SESSTMOUT", "REQTMOUT"})
_SILENCE = _FIRST_SIGNS | {"METADATAUPDATE"}
#: The call, the delivery or the transaction that suffers from these reports it itself.
_TOLD_BY_A_CALL = frozenset({"FATAL", "TXNERR", "ADDPARTS", "ADDOFFSETS"})


class LibrdkafkaLog:
    """Takes the place of a logger in librdkafka's Python client, which calls `log` only."""

    def __init__(
        self,
        outage: Outage,
        logger: logging.Logger | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._outage = outage
        self._logger = logger or logging.getLogger(LOGGER_NAME)
        self._clock = clock
        self._lock = threading.Lock()
        self._lines = LastingTroubles(REPEAT_AFTER)
        #: Whether the broker that was connected to last is older than Kafka 4.0; None: none has said its version yet.
        self.too_old: bool | None = None

    def log(self, level: int, pattern: str, facility: str, client: str, text: str) -> None:
        """Logs one line of librdkafka."""
        if facility == "APIVERSION":
            self._look_at_version(text)
        if facility in _FIRST_SIGNS:
            self._outage.suspect()
        level = self._level(level, facility, text)
        if level > logging.DEBUG:
            level = self._repeated(level, facility, text)
        self._logger.log(level, pattern, facility, client, text)

    def _look_at_version(self, text: str) -> None:
        found = _FETCH.search(text)
        if found is not None:
            self.too_old = int(found[1]) < _OLDEST_FETCH

    def _level(self, level: int, facility: str, text: str) -> int:
        if facility in _CONNECTION | _SILENCE and self._outage.explains:
            return logging.DEBUG
        if facility in _SILENCE or (facility in _TOLD_BY_A_CALL and self._outage.explains):
            return min(level, logging.INFO)
        if facility == "CONFWARN" and _ON_PURPOSE.search(text):
            return logging.DEBUG
        if facility == "GETPID" and text.endswith("retrying"):
            return logging.INFO
        if facility in _CONNECTION | _TOLD_BY_A_CALL:
            return min(level, logging.WARNING)
        return level

    def _repeated(self, level: int, facility: str, text: str) -> int:
        """Returns the level of a line that may say the same as one before."""
        line = f"{facility} {_NUMBERS.sub('#', text)}"
        with self._lock:
            told, left_out = self._lines.notice(
                line, self._clock(), _LASTING if facility in _CONNECTION else 0.0
            )
        if told is Loudness.NOT_AGAIN:
            return logging.DEBUG
        if told is Loudness.QUIETLY:
            return min(level, logging.INFO)
        if left_out:
            self._logger.log(level, "%d lines like the next one were left out", left_out)
        return level
