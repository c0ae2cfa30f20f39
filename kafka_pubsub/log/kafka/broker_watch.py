"""Whether a client of librdkafka's has lost its brokers for good (decisions 046 and 073)."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Final, Protocol

from confluent_kafka import KafkaError, KafkaException

from kafka_pubsub.errors import PubSubError
from kafka_pubsub.log.kafka.client_factory import ClientFactory
from kafka_pubsub.log.kafka.errors import error_of

__all__ = ["LOST_S", "look_for_brokers"]

#: Seconds without any answer after which a client that has complained is asked.
LOST_S: Final = 10.0
#: Seconds for a request for metadata; a broker that is there answers in milliseconds.
_METADATA_S: Final = 2.0


class Ask(Protocol):
    """The method `list_topics` of a producer, a consumer or an admin client."""

    def __call__(self, *, timeout: float) -> object: ...


def look_for_brokers(
    ask: Ask,
    handles: ClientFactory,
    on_lost: Callable[[], object],
    on_found: Callable[[], object] = lambda: None,
) -> None:
    """Asks a client, on a thread of its own, and calls `on_lost` if it finds no broker although a new client does.

    `on_found` is called if the client finds one. If no broker is there, or one of the two is closed meanwhile, neither.
    """

    def look() -> None:
        with contextlib.suppress(PubSubError, RuntimeError):  # closed meanwhile
            if _failure(ask) is None:
                on_found()
                return
            fresh = handles.admin()
            try:
                there = _failure(fresh.list_topics) is None
            finally:
                handles.close_admin(fresh)
            # Asked again, because the brokers may have come back meanwhile.
            if there and _failure(ask) == KafkaError._TRANSPORT:
                on_lost()

    threading.Thread(target=look, name="kafka_pubsub-find-brokers", daemon=True).start()


def _failure(ask: Ask) -> int | None:
    """Returns the code of the error with which no broker answers a client; None: one answers."""
    try:
        ask(timeout=_METADATA_S)
    except KafkaException as failure:
        return error_of(failure).code()
    return None
