"""Requests to the cluster: time limits, retries, and the reason of a missing answer.

Rules
1. Every call has one overall deadline, retries included. After a `TRANSIENT` error it is made again.
2. Waiting happens in slices, so that Ctrl-C works and librdkafka's callbacks and log lines come through.
3. A few of librdkafka's calls take no time limit and never return while a broker is frozen (an answered connection,
   no answers): `Bounded` runs them on a thread of their own and stops waiting.
4. When time runs out while no broker can be reached, the error says that, with the reason; not "timed out".
5. Until a broker has answered once, the address may be wrong: a call fails after `FIRST` seconds, unless something
   takes connections there and doesn't refuse the login. A broker that is far away, or starved of processor time, needs
   longer for TLS and a login.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import socket
import threading
import time
import traceback
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import TypeVar
from urllib.parse import urlsplit

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from tenacity import Retrying, retry_if_exception, wait_random_exponential

from kafka_pubsub.errors import PubSubError
from kafka_pubsub.log.kafka.client_factory import Trouble
from kafka_pubsub.log.kafka.errors import (
    CONNECTION,
    error_of,
    is_refusal,
    is_transient,
    translate,
    unreachable,
)
from kafka_pubsub.log.kafka.outages import outage_of

__all__ = [
    "DEADLINE",
    "FIRST",
    "LOOK",
    "Bounded",
    "ask",
    "explain",
    "serving",
    "takes_connections",
    "wait_for",
]

#: Seconds for one call. A broker that restarts is back in about 5; more would look like a hang to a person.
DEADLINE = 15.0

#: Seconds for the first answer of a cluster: with a probe, and on a slow machine, a wrong address is reported in 5.
FIRST = 3.0

#: Seconds between two runs of librdkafka's callbacks while waiting: short enough for Ctrl-C.
_SLICE = 0.1

#: Seconds without an answer after which the client is asked which brokers are up; and seconds for that.
_SILENT, LOOK = 1.0, 0.5

#: librdkafka's codes for a request without an answer.
_SILENCE = frozenset({KafkaError._TIMED_OUT, KafkaError._WAIT_COORD})

_T = TypeVar("_T")


def ask(
    call: Callable[[float], _T],
    doing: str,
    *,
    address: str,
    trouble: Trouble,
    deadline: float = DEADLINE,
    loading: float = 0.0,
) -> _T:
    """Makes a call with the seconds that are left, again after a transient error; raises our errors.

    `loading`: seconds that it has beyond the deadline while a broker answers that it isn't ready for this yet.
    """
    started = time.monotonic()
    end = started + deadline

    def attempt() -> _T:
        nonlocal end
        try:
            return call(max(end - time.monotonic(), 0.001))
        except KafkaException as failure:
            # Only librdkafka's own errors are below -1: any other is a broker's answer.
            answered = error_of(failure).code() >= KafkaError.UNKNOWN
            trouble.reached |= answered
            end = started + deadline + (loading if answered else 0.0)
            raise

    def is_over() -> bool:
        now = time.monotonic()
        return now >= end or (now >= started + FIRST and not _may_answer(address, trouble))

    retries = Retrying(
        retry=retry_if_exception(is_transient),
        stop=lambda state: is_over(),
        # Seconds, with full jitter: an election takes some 100 ms, and 20 clients shouldn't ask in step.
        wait=wait_random_exponential(multiplier=0.02, max=0.5),
        reraise=True,
    )
    try:
        answer = retries(attempt)
    except KafkaException as failure:
        # Its frames refer to it and to the call's client, which would live on until the collector runs.
        traceback.clear_frames(failure.__traceback__)
        raise explain(failure, doing, address, trouble, time.monotonic() - started) from None
    trouble.clear()
    return answer


def _may_answer(address: str, trouble: Trouble) -> bool:
    """Returns whether a broker has answered before, or may be about to (rule 5)."""
    if trouble.reached:
        return True
    if trouble.last is not None and is_refusal(trouble.last):
        return False
    if trouble.connects:
        return True
    if trouble.last is not None and "," not in address:
        return False  # there is one address, and the reason is known
    trouble.connects = takes_connections(address)
    return trouble.connects


def explain(
    failure: KafkaException, doing: str, address: str, trouble: Trouble, silent: float = 0.0
) -> PubSubError:
    """Returns the reason of a time-out or a lost connection, if librdkafka gave one; else the error.

    `silent`: seconds for which the call waited in vain.
    """
    code = error_of(failure).code()
    if code not in _SILENCE and code not in CONNECTION:
        return translate(failure, doing)
    outage = outage_of(address)
    outage.suspect(silent)
    if trouble.last is not None or not trouble.reached or outage.told:
        return unreachable(doing, address, trouble.last)
    return translate(failure, doing)


def wait_for(future: concurrent.futures.Future[_T], seconds: float, serve: Callable[[float], object]) -> _T:
    """Waits for a future's result; `serve(0)` runs librdkafka's callbacks meanwhile."""
    end = time.monotonic() + seconds
    while True:
        left = end - time.monotonic()
        done, _ = concurrent.futures.wait([future], timeout=max(min(left, _SLICE), 0))
        serve(0)
        if done:
            return future.result()
        if left <= 0:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "no answer"))


def serving(client: AdminClient, address: str, trouble: Trouble) -> Callable[[float], object]:
    """Returns a function that runs the client's callbacks during a wait, and refreshes its metadata if no answer comes.

    It raises when no broker has answered within `FIRST` seconds, nor ever before, and none is about to (rule 5).

    Requests go to the broker that was the controller by the last metadata, and without topics of its own an admin
    client never asks for newer ones: with that broker down they would wait until it is back.
    """
    began = looked = time.monotonic()

    def serve(wait: float) -> None:
        nonlocal looked
        client.poll(wait)
        if time.monotonic() > looked + _SILENT:
            with contextlib.suppress(KafkaException):
                client.list_topics(timeout=LOOK)
                trouble.reached = True
            looked = time.monotonic()
        if time.monotonic() >= began + FIRST and not _may_answer(address, trouble):
            raise KafkaException(KafkaError(KafkaError._ALL_BROKERS_DOWN, "no answer"))

    return serve


class Bounded:
    """Runs calls that may never return, one at a time.

    A call that was given up goes on in its thread; the next call waits for it, within its own limit. The threads are
    daemons, so that the process can end while a broker is frozen.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        # Taken by the caller, given back by the thread that made the call.
        self._free = threading.Lock()

    @property
    def busy(self) -> bool:
        """Whether a call that was given up hasn't returned yet."""
        return self._free.locked()

    def run(self, call: Callable[[], _T], seconds: float) -> _T:
        """Returns the call's result, or `_TIMED_OUT` after `seconds`."""
        end = time.monotonic() + seconds
        if not self._free.acquire(timeout=seconds):
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "the one before isn't answered yet"))
        answer: concurrent.futures.Future[_T] = concurrent.futures.Future()
        threading.Thread(target=self._work, args=(call, answer), name=self._name, daemon=True).start()
        if not concurrent.futures.wait([answer], max(end - time.monotonic(), 0)).done:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "no answer"))
        return answer.result()

    def _work(self, call: Callable[[], _T], answer: concurrent.futures.Future[_T]) -> None:
        try:
            found = call()
        except BaseException as failure:
            self._free.release()
            answer.set_exception(failure)
        else:
            self._free.release()
            answer.set_result(found)


#: Seconds for all addresses together: a round trip between continents takes a third of a second.
_SECONDS = 0.7
_PORT = 9092


def takes_connections(addresses: str) -> bool:
    """Returns whether one of these addresses (`host:port`, several with commas) takes TCP connections.

    librdkafka reports a connection that was refused, and nothing at all while it connects, greets or logs in. So an
    address that drops packets looks like a broker that is far away. A plain TCP connection distinguishes them: it takes
    one round trip, and the operating system of a busy machine answers for the broker.
    """
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
