"""Asking the cluster something and waiting for the answer: time limits, retries, and why there was no answer.

Rules
1. Every call has one overall deadline, retries included. What passes by itself (`TRANSIENT`) is asked again.
2. Waiting happens in slices, so that Ctrl-C works and librdkafka's callbacks and log lines come through.
3. When time runs out while no broker can be reached, the error says that, with the reason; not "timed out".
"""

from __future__ import annotations

import concurrent.futures
import time
from collections.abc import Callable
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_random_exponential

from kafka_pubsub.errors import PubSubError
from kafka_pubsub.kafka.errors import CONNECTION, error_of, is_transient, translate, unreachable
from kafka_pubsub.kafka.handles import Trouble

__all__ = ["DEADLINE", "ask", "wait_for"]

#: Seconds for one call. A broker that restarts is back in about 5; more would look like a hang to a person.
DEADLINE = 15.0

#: Seconds between two looks at the callbacks while waiting: short enough for Ctrl-C.
_SLICE = 0.1

_T = TypeVar("_T")


def ask(
    call: Callable[[float], _T],
    doing: str,
    *,
    address: str,
    trouble: Trouble,
    deadline: float = DEADLINE,
) -> _T:
    """Calls with the seconds that are left, again after a transient error; raises our errors."""
    end = time.monotonic() + deadline
    retries = Retrying(
        retry=retry_if_exception(is_transient),
        stop=stop_after_delay(deadline),
        # Seconds, with full jitter: an election takes some 100 ms, and 20 clients shouldn't ask in step.
        wait=wait_random_exponential(multiplier=0.02, max=0.5),
        reraise=True,
    )
    try:
        answer = retries(lambda: call(max(end - time.monotonic(), 0.001)))
    except KafkaException as failure:
        raise explain(failure, doing, address, trouble) from None
    trouble.clear()
    return answer


def explain(failure: KafkaException, doing: str, address: str, trouble: Trouble) -> PubSubError:
    """A time-out or a lost connection is told by its reason, if we know it."""
    code = error_of(failure).code()
    if trouble.last is not None and (code == KafkaError._TIMED_OUT or code in CONNECTION):
        return unreachable(doing, address, trouble.last)
    return translate(failure, doing)


def wait_for(future: concurrent.futures.Future[_T], seconds: float, serve: Callable[[float], object]) -> _T:
    """The future's result; `serve(0)` runs librdkafka's callbacks meanwhile."""
    end = time.monotonic() + seconds
    while True:
        left = end - time.monotonic()
        done, _ = concurrent.futures.wait([future], timeout=max(min(left, _SLICE), 0))
        serve(0)
        if done:
            return future.result()
        if left <= 0:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "no answer"))
