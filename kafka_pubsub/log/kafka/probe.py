"""Distinguishes an address without a broker from a broker that is slow.

Theory. librdkafka reports a connection that was refused, and nothing at all while it connects, greets or logs in. So
an address that drops packets looks like a broker that is far away. A plain TCP connection distinguishes them: it takes
one round trip, and the operating system of a busy machine answers for the broker.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from queue import Empty, SimpleQueue
from urllib.parse import urlsplit

__all__ = ["takes_connections"]

#: Seconds for all addresses together: a round trip between continents takes a third of a second.
_SECONDS = 0.7
_PORT = 9092


def takes_connections(addresses: str) -> bool:
    """Returns whether one of these addresses (`host:port`, several with commas) takes TCP connections."""
    answers: SimpleQueue[bool] = SimpleQueue()
    places = addresses.split(",")
    for place in places:  # daemons: resolving a host name may take long, and can't be stopped
        threading.Thread(target=_try, args=(place, answers), name="kafka_pubsub-probe", daemon=True).start()
    end = time.monotonic() + _SECONDS
    with contextlib.suppress(Empty):
        return any(answers.get(timeout=max(0.0, end - time.monotonic())) for _ in places)
    return False


def _try(place: str, answers: SimpleQueue[bool]) -> None:
    try:
        found = urlsplit("//" + place.strip().rpartition("://")[2])
        socket.create_connection((found.hostname or "", found.port or _PORT), _SECONDS).close()
    except (OSError, ValueError):  # UnicodeError, of a host name that can't be one, is a ValueError
        answers.put(False)
    else:
        answers.put(True)
