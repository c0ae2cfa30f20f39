"""Whether a delay router or a sequencer runs, as commands ask for it: a remark beside what they did.

Rules
1. The question takes `PATIENCE` seconds at most, whatever the cluster does, and never fails a command.
2. An answer that doesn't come is said as such, not taken for a no.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from kafka_pubsub.errors import DeadlineExceeded, PubSubError

if TYPE_CHECKING:
    from kafka_pubsub.app import PubSub
    from kafka_pubsub.cli.output import Output

__all__ = ["NO_ROUTER", "Delays", "count_routers", "count_sequencers", "look_at_delays"]

#: Seconds for an answer of the cluster.
PATIENCE = 5.0

NO_ROUTER = "No delay router is running: `kafka-pubsub service router` starts one."
_NO_SEQUENCER = "No sequencer is running: `kafka-pubsub service sequencer` starts one."

_T = TypeVar("_T")


class Delays(NamedTuple):
    """How many routers run, and whether messages wait while none does; None: not known."""

    routers: int | None = None
    waiting: bool | None = None


def count_routers(pubsub: PubSub, output: Output) -> int | None:
    """Returns how many routers run, and says it if there is none; None: the cluster doesn't tell, which is said too."""
    return _count(pubsub.delays.routers, "a delay router", NO_ROUTER, output)


def count_sequencers(pubsub: PubSub, output: Output) -> int | None:
    """Returns how many sequencers run, and says it if there is none; None: the cluster doesn't tell, which is said."""
    return _count(pubsub.multicast.sequencers, "a sequencer", _NO_SEQUENCER, output)


def _count(ask: Callable[[], int], service: str, missing: str, output: Output) -> int | None:
    try:
        found = _within(PATIENCE, ask)
    except PubSubError as error:
        output.note(f"Whether {service} is running isn't known: {error.message}")
        return None
    if not found:
        output.note(missing)
    return found


def look_at_delays(open_pubsub: Callable[[], AbstractContextManager[PubSub]]) -> Delays:
    """Returns what the cluster tells in time."""
    found = Delays()

    def look() -> None:
        nonlocal found
        with open_pubsub() as pubsub:
            found = Delays(pubsub.delays.routers())
            if not found.routers:
                waiting = next(iter(pubsub.delays.waiting()), None) is not None
                found = Delays(found.routers, waiting)

    with suppress(PubSubError):
        _within(PATIENCE, look)
    return found


def _within(seconds: float, ask: Callable[[], _T]) -> _T:
    """Returns the answer, or raises what `ask` raises; `DeadlineExceeded` if neither comes in time."""
    answer: Future[_T] = Future()

    def work() -> None:
        try:
            answer.set_result(ask())
        except BaseException as error:
            answer.set_exception(error)

    # A daemon: the end of the command doesn't wait for it.
    threading.Thread(target=work, name="kafka_pubsub-routers", daemon=True).start()
    try:
        return answer.result(seconds)
    except TimeoutError:
        raise DeadlineExceeded(f"the cluster hasn't answered for {seconds:g} s") from None
