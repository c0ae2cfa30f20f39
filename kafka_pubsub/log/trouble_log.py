"""Logs troubles that are noticed again and again while something is tried again.

Rules
1. A trouble that passes by itself is a warning only if it lasts for `LASTING` seconds; any other is one at once. Both
   are repeated once a minute.
2. That no broker answers is never a warning here: the adapter says so, once for the whole process.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from kafka_pubsub.errors import BrokerUnavailable, DeadlineExceeded, PubSubError
from kafka_pubsub.log.lasting_troubles import LastingTroubles, Loudness

__all__ = ["EVERY", "LASTING", "TroubleLog"]

#: Seconds after which a trouble that should pass is worth a warning: a broker that restarts is back in 5.
LASTING: Final = 10.0
#: Seconds between two warnings of the same trouble.
EVERY: Final = 60.0


class TroubleLog:
    """The troubles of one stream or service."""

    def __init__(self, log: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._clock = clock
        self._lock = threading.Lock()
        self._troubles = LastingTroubles(EVERY)

    def tell(self, error: PubSubError, text: str, *args: object) -> None:
        """Logs a line about the error.

        Lines of one text are the same trouble if the error is the same, or passes in either case.
        """
        passes = isinstance(error, BrokerUnavailable | DeadlineExceeded)
        trouble = (text, None if passes else error.message)
        with self._lock:
            told, _ = self._troubles.notice(trouble, self._clock(), LASTING if passes else 0.0)
        if told is Loudness.AS_WARNING and not (isinstance(error, BrokerUnavailable) and error.outage):
            self._log.warning(text, *args)
        elif told is Loudness.QUIETLY:
            self._log.info(text, *args)
        else:
            self._log.debug(text, *args)
